#!/bin/sh
# Runs a part of Spark, or what drives it, with spark-defaults.conf and a secret: start.sh FOLDER PROGRAM...
#
# Spark takes the secret from its configuration and from nowhere else, so FOLDER is made for that; it is on no command
# line. Reads the file spark_secret in the folder SECRETS and, of what drives Spark, SPARK_DRIVER_HOST: the name at which executors reach it.
set -eu

umask 077
mkdir -p "$1"
{
    cat "$(dirname "$0")/spark-defaults.conf"
    read -r secret < "${SECRETS:?is not set}/spark_secret" || true # without a line break at its end
    echo "spark.authenticate.secret ${secret:?the secret spark_secret is empty: make env makes it}"
    [ -z "${SPARK_DRIVER_HOST:-}" ] || echo "spark.driver.host $SPARK_DRIVER_HOST"
} > "$1/spark-defaults.conf"
export SPARK_CONF_DIR="$1"
shift
exec "$@"
