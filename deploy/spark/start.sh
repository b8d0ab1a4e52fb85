#!/bin/sh
# Runs a part of Spark, or what drives it, with spark-defaults.conf and a secret: start.sh FOLDER PROGRAM...
#
# Spark takes the secret from its configuration and from nowhere else, so FOLDER is made for that; it is on no command
# line. Reads SPARK_SECRET and, of what drives Spark, SPARK_DRIVER_HOST: the name at which executors reach it.
set -eu

umask 077
mkdir -p "$1"
{
    cat "$(dirname "$0")/spark-defaults.conf"
    echo "spark.authenticate.secret ${SPARK_SECRET:?is not set}"
    [ -z "${SPARK_DRIVER_HOST:-}" ] || echo "spark.driver.host $SPARK_DRIVER_HOST"
} > "$1/spark-defaults.conf"
export SPARK_CONF_DIR="$1"
unset SPARK_SECRET
shift
exec "$@"
