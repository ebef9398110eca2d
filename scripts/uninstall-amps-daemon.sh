#!/bin/sh
# Uninstalls the server as a service of this machine; run it as root. See amps-service(1).
exec "$(dirname "$0")/amps-service" uninstall "$@"
