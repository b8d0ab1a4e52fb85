#!/bin/sh
# Runs Valkey with a user for each part: start.sh FILE ADDRESS
#
# The users are written to FILE with hashes of their passwords; no password is on a command line. docs/security.md says
# what each user may do, and why. Reads valkey_worker_password, valkey_beat_password, valkey_operator_password and
# valkey_client_password in the folder SECRETS.
set -eu

# `printf` is a shell builtin, so other processes can't see its arguments.
hash() {
    read -r password < "$SECRETS/valkey_$1_password" || true # the file may lack the final line break
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
# Nothing is persisted, because Valkey holds only hints: lost messages are requeued from MongoDB. Protected mode is for
# servers without passwords.
exec valkey-server --bind "$2" --protected-mode no --aclfile "$1" --save "" --appendonly no --maxmemory-policy noeviction
