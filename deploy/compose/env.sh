#!/bin/sh
# Makes .env of env.example with random passwords: env.sh FILE [full|small]
#
# `small` is one node of MongoDB, one worker, one beat, no Spark, nobody who watches. Needs nothing but a shell.
set -eu

file=${1:?where to: env.sh FILE [full|small]}
size=${2:-full}
case $size in
    full | small) ;;
    *) echo "error: SIZE is '$size': it must be full or small" >&2; exit 2 ;;
esac
if [ -e "$file" ]; then
    echo "error: $file is there already, with the passwords that the data were made with; change it by hand," \
         "or remove it with the data (docker compose down --volumes)" >&2
    exit 2
fi

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

umask 077
while IFS= read -r line; do
    case $size:$line in
        *_PASSWORD= | *_SECRET=) line=$line$(random) ;;
        small:COMPOSE_PROFILES=*) line=COMPOSE_PROFILES= ;;
        small:MONGO_NODES=*) line=MONGO_NODES=mongo1:27017 ;;
        small:WORKERS=* | small:BEATS=*) line=${line%%=*}=1 ;;
        small:RECOVERY_SWEEP_INTERVAL=*) line="# $line" ;;
    esac
    printf '%s\n' "$line"
done < "$(dirname "$0")/env.example" > "$file.new"
mv "$file.new" "$file"
echo "$file: a $size cluster, with random passwords; readable for you alone"
