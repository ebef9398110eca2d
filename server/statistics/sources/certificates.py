"""The instance's own certificates. Read on the thread of statistics: a file system may block it.

A file is read again when it changes. One that cannot be read has no entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.engine.maintenance.certificate_expiry import certificate_users, read_expiry_times
from server.statistics.resources import CERTIFICATES
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.statistics.schema import Resource


class CertificatesSource:
    """The certificates of an instance, numbered in the order of the configuration.

    Args:
        spec: the instance's description.
    """

    resource: Resource = CERTIFICATES

    def __init__(self, spec: InstanceSpec) -> None:
        self._files = [
            (str(number), (path, ", ".join(users)))
            for number, (path, users) in enumerate(certificate_users(spec).items(), 1)
        ]
        self._expiry_cache: dict[str, tuple[tuple[int, int], int | None]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for number, static_values in self._files:
            expiry_s = self._expiry_s(static_values[0])
            if expiry_s is not None:
                yield StatisticsEntry(number, static_values, (expiry_s,))

    def _expiry_s(self, path: str) -> int | None:
        """Return when the first certificate of a file to expire does; None if there is none."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        version = status.st_mtime_ns, status.st_ino
        if path not in self._expiry_cache or self._expiry_cache[path][0] != version:
            expiry_s = min((int(end.timestamp()) for end in read_expiry_times(path)), default=None)
            self._expiry_cache[path] = version, expiry_s
        return self._expiry_cache[path][1]
