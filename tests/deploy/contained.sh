#!/bin/sh
# Runs a program as a read-only container would: contained.sh TMP_OPTIONS FOLDER... -- PROGRAM...
#
# The root file system is read-only, /tmp is empty and the program's own, and it is nobody's user without any right but
# to read. Each FOLDER is seen as it is, though it be in /tmp; one with a + before it is a volume, which is the user's
# own. By a root user, in a mount namespace of its own.
set -eu

options=$1
shift
mount --make-rprivate /
mount -t tmpfs -o "$options,nosuid,nodev,mode=1777" tmpfs /srv
while [ "$1" != -- ]; do
    case $1 in
        +*)
            mkdir -p "/srv/${1#+/tmp/}"
            chown -R 1000:1000 "${1#+}"
            mount --bind "${1#+}" "/srv/${1#+/tmp/}"
            ;;
        /tmp/*)
            mkdir -p "/srv/${1#/tmp/}"
            mount --bind "$1" "/srv/${1#/tmp/}"
            mount -o remount,bind,ro "/srv/${1#/tmp/}"
            ;;
    esac
    shift
done
shift
mount --rbind /srv /tmp
umount -R /srv
mount -o remount,bind,ro /
cd /
# To read, since what is installed may be root's alone.
exec setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --bounding-set=-all,+dac_read_search \
    --inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search "$@"
