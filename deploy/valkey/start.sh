#!/bin/sh
# Valkey with users of its own for each part: start.sh FILE ADDRESS
#
# FILE is made for the users, with hashes of their passwords; nothing of a password is on a command line. Who may do
# what, and why, is in docs/security.md. Reads valkey_worker_password, valkey_beat_password, valkey_operator_password
# and valkey_client_password in the folder SECRETS.
set -eu

# The shell's own printf: no other process sees what it writes.
hash() {
    read -r password < "$SECRETS/valkey_$1_password" || true # without a line break at its end
    printf %s "$password" | sha256sum | cut -c 1-64
}
for user in worker beat operator client; do
    grep -q . "${SECRETS:?is not set}/valkey_${user}_password" || {
        echo "error: there is no secret valkey_${user}_password, or it is empty: \`make env\` makes it" >&2
        exit 2
    }
done

umask 077
cat > "$1" <<ACL
user default off
user worker on #$(hash worker) ~* &/0.celery.pidbox -@all +@connection -@dangerous +brpop +llen +lpush +rpush +lrange +rpop +type +watch +unwatch +renamenx +sadd +srem +exists +del +time +zadd +zrem +zrangebyscore +multi +exec +pttl +pexpire +object|idletime +evalsha +script|load +script|exists +publish +psubscribe +punsubscribe
user beat on #$(hash beat) ~recovery.nudge* ~spark* ~_kombu.* -@all +@connection -@dangerous +lpush +ltrim +sadd +llen +multi +exec
user operator on #$(hash operator) ~* &/0.celery.pidbox -@all +@connection -@dangerous +lpush +rpush +llen +del +publish +info +time +type +object|idletime
user client on #$(hash client) ~* -@all +@connection -@dangerous +lpush +rpush
ACL
# Nothing is saved: it holds hints, and what is lost is queued again from MongoDB. Its own protected mode is for a server
# without a login.
exec valkey-server --bind "$2" --protected-mode no --aclfile "$1" --save "" --appendonly no --maxmemory-policy noeviction
