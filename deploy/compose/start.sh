#!/bin/sh
# Runs a program with the addresses for its login: start.sh FILE PROGRAM...
#
# The passwords are compose secrets, that is, files. The addresses with passwords are written to FILE, in the container's
# memory. So the passwords are not on a command line, and not in the environment, which `docker inspect` shows and child
# processes inherit.
# Reads MONGO_LOGIN (worker, operator or client), VALKEY_LOGIN (the same, or beat), MONGO_NODES (HOST:PORT, separated by
# commas), VALKEY_NODE (HOST:PORT), and SECRETS, the folder of the secrets.
set -eu

fail() {
    echo "error: $1" >&2
    exit 2
}

# Print the password in a file. It is used in an address and in TOML, so it consists of letters, digits and -._~ only.
password() {
    [ -r "$SECRETS/$1" ] || fail "there is no secret $1: \`make env\` makes it"
    read -r text < "$SECRETS/$1" || true # the file may lack the final line break
    case $text in
        '') fail "the secret $1 is empty: \`make env\` makes it" ;;
        *[!A-Za-z0-9._~-]*) fail "the secret $1: it may contain only letters, digits and -._~, because it is part of an address" ;;
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
