#!/bin/sh
# Starts haproxy with the arguments given, as master and worker in the foreground; any other command runs as it is.
set -e
case ${1:-} in
  -*) set -- haproxy "$@" ;;
esac
if [ "${1:-}" = haproxy ]; then
  shift
  set -- haproxy -W -db "$@"
fi
exec "$@"
