#!/bin/sh
# Makes the key with which MongoDB's nodes authenticate each other, unless it exists: keyfile.sh FILE
set -eu

[ ! -s "$1" ] || exit 0
umask 077
# mongod accepts at most 1 kB.
head -c 567 /dev/urandom | base64 | tr -d '\n' > "$1.new"
chmod 400 "$1.new"
# mongod refuses a key that belongs to another user.
[ "$(id -u)" != 0 ] || ! id mongodb > /dev/null 2>&1 || chown mongodb: "$1.new"
mv "$1.new" "$1"
