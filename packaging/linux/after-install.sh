#!/bin/sh
# postinst of the Debian package, %post of the RPM.
set -e
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers --root="${DPKG_ROOT:-/}" amps.conf
fi
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # The code of an instance that runs has been replaced.
    systemctl try-restart amps.service 'amps@*.service' ||
        echo "amperage: an instance did not start again; see systemctl --failed" >&2
fi
