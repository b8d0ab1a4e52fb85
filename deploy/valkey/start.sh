#!/bin/sh
# Valkey with users of its own for each part: start.sh FILE ADDRESS
#
# FILE is made for the users, with hashes of their passwords; nothing of a password is on a command line. Who may do
# what, and why, is in docs/security.md. Reads VALKEY_WORKER_PASSWORD, VALKEY_BEAT_PASSWORD, VALKEY_OPERATOR_PASSWORD
# and VALKEY_CLIENT_PASSWORD.
set -eu

# The shell's own printf: no other process sees what it writes.
hash() { printf %s "$1" | sha256sum | cut -c 1-64; }

umask 077
cat > "$1" <<ACL
user default off
user worker on #$(hash "${VALKEY_WORKER_PASSWORD:?is not set}") ~* &/0.celery.pidbox -@all +@connection -@dangerous +brpop +llen +lpush +rpush +lrange +rpop +type +watch +unwatch +renamenx +sadd +srem +exists +del +time +zadd +zrem +zrangebyscore +multi +exec +pttl +pexpire +evalsha +script|load +script|exists +publish +psubscribe +punsubscribe
user beat on #$(hash "${VALKEY_BEAT_PASSWORD:?is not set}") ~recovery.nudge* ~spark* ~_kombu.* -@all +@connection -@dangerous +lpush +ltrim +sadd +llen +multi +exec
user operator on #$(hash "${VALKEY_OPERATOR_PASSWORD:?is not set}") ~* &/0.celery.pidbox -@all +@connection -@dangerous +lpush +rpush +llen +del +publish +info +time +type
user client on #$(hash "${VALKEY_CLIENT_PASSWORD:?is not set}") ~* -@all +@connection -@dangerous +lpush +rpush
ACL
unset VALKEY_WORKER_PASSWORD VALKEY_BEAT_PASSWORD VALKEY_OPERATOR_PASSWORD VALKEY_CLIENT_PASSWORD
# Nothing is saved: it holds hints, and what is lost is queued again from MongoDB. Its own protected mode is for a server
# without a login.
exec valkey-server --bind "$2" --protected-mode no --aclfile "$1" --save "" --appendonly no --maxmemory-policy noeviction
