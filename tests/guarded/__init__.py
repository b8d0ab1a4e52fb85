"""Servers that ask for logins and speak TLS only, with passwords that are easily found wherever they stand."""
