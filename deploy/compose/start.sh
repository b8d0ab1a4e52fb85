#!/bin/sh
# Runs a program of ours with the addresses that its login gives it: start.sh FILE PROGRAM...
#
# The passwords are secrets of compose: files. So they stand neither in the environment, which `docker inspect` shows and
# all that a program starts inherits, nor on a command line, but in FILE, which is in the container's memory.
# Reads MONGO_LOGIN (worker, operator or client), VALKEY_LOGIN (the same, or beat), MONGO_NODES and VALKEY_NODE (HOST:PORT,
# of MongoDB with commas), and the folder of secrets, SECRETS.
set -eu

fail() {
    echo "error: $1" >&2
    exit 2
}

# The password in a file, which stands in an address and in TOML: of letters, digits and -._~ only.
password() {
    [ -r "$SECRETS/$1" ] || fail "there is no secret $1: \`make env\` makes it"
    read -r text < "$SECRETS/$1" || true # without a line break at its end
    case $text in
        '') fail "the secret $1 is empty: \`make env\` makes it" ;;
        *[!A-Za-z0-9._~-]*) fail "the secret $1: letters, digits and -._~ only, since it stands in an address" ;;
    esac
    printf %s "$text"
}

file=$1
shift
mongo=$(password "mongo_${MONGO_LOGIN}_password")
valkey=$(password "valkey_${VALKEY_LOGIN}_password")
umask 077
cat > "$file" <<TOML
mongo_uri = "mongodb://recovery-$MONGO_LOGIN:$mongo@$MONGO_NODES/?replicaSet=rs0&authSource=admin"
broker_url = "redis://$VALKEY_LOGIN:$valkey@$VALKEY_NODE/0"
TOML
exec "$@"
