#!/bin/sh
# prerm of the Debian package, %preun of the RPM. An upgrade stops nothing.
set -e
case "$1" in
remove | 0)
    if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
        systemctl stop amps.service 'amps@*.service'
        systemctl disable amps.service amps@.service # with all instances of the template
    fi
    ;;
esac
