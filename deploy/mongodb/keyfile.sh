#!/bin/sh
# The key by which the nodes of MongoDB know each other, made once: keyfile.sh FILE
set -eu

[ ! -s "$1" ] || exit 0
umask 077
# 1 kB is the most that mongod takes.
head -c 567 /dev/urandom | base64 | tr -d '\n' > "$1.new"
chmod 400 "$1.new"
# mongod reads no key that is another user's.
[ "$(id -u)" != 0 ] || ! id mongodb > /dev/null 2>&1 || chown mongodb: "$1.new"
mv "$1.new" "$1"
