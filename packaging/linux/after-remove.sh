#!/bin/sh
# postrm of the Debian package, %postun of the RPM. Configurations, data and the user stay.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
