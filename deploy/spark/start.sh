#!/bin/sh
# Runs a part of Spark, or its driver, with spark-defaults.conf and a secret: start.sh FOLDER PROGRAM...
#
# Spark reads the secret only from its configuration, so the configuration is written to FOLDER. The secret is on no
# command line. Reads the file spark_secret in the folder SECRETS and, for a driver, SPARK_DRIVER_HOST: the host name at
# which executors reach it.
set -eu

umask 077
mkdir -p "$1"
{
    cat "$(dirname "$0")/spark-defaults.conf"
    read -r secret < "${SECRETS:?is not set}/spark_secret" || true # the file may lack the final line break
    echo "spark.authenticate.secret ${secret:?the secret spark_secret is empty: make env makes it}"
    [ -z "${SPARK_DRIVER_HOST:-}" ] || echo "spark.driver.host $SPARK_DRIVER_HOST"
} > "$1/spark-defaults.conf"
export SPARK_CONF_DIR="$1"
shift
exec "$@"
