"""The whole failure map on processes that really run: each way to break, its name, its repair, its end."""
