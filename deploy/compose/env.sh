#!/bin/sh
# Makes .env from env.example, and random passwords in the folder secrets next to it: env.sh FILE [full|small]
#
# `small` is one MongoDB node, one worker, one beat, and no Spark or monitoring. Needs only a shell.
# If FILE exists and still contains passwords, as older versions wrote them, they are moved into the folder.
set -eu

file=${1:?where to: env.sh FILE [full|small]}
size=${2:-full}
case $size in
    full | small) ;;
    *) echo "error: SIZE is '$size': it must be full or small" >&2; exit 2 ;;
esac
folder=$(dirname "$file")/secrets
names="mongo_admin_password mongo_worker_password mongo_operator_password mongo_client_password
       valkey_worker_password valkey_beat_password valkey_operator_password valkey_client_password
       spark_secret grafana_password"
in_file="^[A-Z_]*_(PASSWORD|SECRET)="
if [ -e "$file" ] && ! grep -Eq "$in_file" "$file"; then
    echo "error: $file already exists, and the data were created with its passwords; change it by hand," \
         "or remove it with secrets and the data (docker compose down --volumes)" >&2
    exit 2
fi
if [ -e "$folder" ]; then
    echo "error: $folder already exists, and the data were created with its passwords; remove it with the data" \
         "(docker compose down --volumes), or move it away" >&2
    exit 2
fi

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

umask 077
rm -rf "$folder.new"
mkdir "$folder.new"
for name in $names; do
    password=
    if [ -e "$file" ]; then
        password=$(sed -n "s/^$(echo "$name" | tr '[:lower:]' '[:upper:]')=//p" "$file" | tail -n 1)
    fi
    printf '%s\n' "${password:-$(random)}" > "$folder.new/$name"
    # Containers read the file as another user. The folder's mode protects it from other users of this machine.
    chmod 444 "$folder.new/$name"
done
if [ -e "$file" ]; then
    done="its passwords are moved into secrets"
    { grep -Ev "$in_file" "$file" || true; printf 'SECRETS=./secrets\n'; } > "$file.new"
else
    done="a $size cluster, with random passwords in secrets"
    while IFS= read -r line; do
        case $size:$line in
            small:COMPOSE_PROFILES=*) line=COMPOSE_PROFILES= ;;
            small:MONGO_NODES=*) line=MONGO_NODES=mongo1:27017 ;;
            small:WORKERS=* | small:BEATS=*) line=${line%%=*}=1 ;;
            small:RECOVERY_SWEEP_INTERVAL=*) line=RECOVERY_SWEEP_INTERVAL=0 ;;
        esac
        printf '%s\n' "$line"
    done < "$(dirname "$0")/env.example" > "$file.new"
fi
mv "$folder.new" "$folder"
mv "$file.new" "$file"
echo "$file: $done; only you can read it"
