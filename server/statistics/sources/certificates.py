"""The instance's own certificates. Read on the thread of statistics: a file system may block it.

A file is read again when it changes. One that cannot be read has no entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.engine.maintenance.certificate_expiry import read_expiry_times
from server.statistics.resources import CERTIFICATES
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from server.engine.maintenance.certificate_expiry import CertificateCheck
    from server.statistics.schema import Resource


class CertificatesSource:
    """The certificates of an instance, numbered in the order in which they were first used.

    Args:
        certificates: the certificates in use.
    """

    resource: Resource = CERTIFICATES

    def __init__(self, certificates: CertificateCheck) -> None:
        self._certificates = certificates
        self._numbers: dict[str, str] = {}  # by path
        self._expiry_cache: dict[str, tuple[tuple[int, int], int | None]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for path, users in self._certificates.users.items():
            number = self._numbers.setdefault(path, str(len(self._numbers) + 1))
            expiry_s = self._expiry_s(path)
            if expiry_s is not None:
                yield StatisticsEntry(number, (path, ", ".join(users)), (expiry_s,))

    def _expiry_s(self, path: str) -> int | None:
        """Return when the first certificate of a file to expire does; None if there is none."""
        try:
            status = os.stat(path)
            version = status.st_mtime_ns, status.st_ino
            if path not in self._expiry_cache or self._expiry_cache[path][0] != version:
                ends = [int(end.timestamp()) for end in read_expiry_times(path)]
                self._expiry_cache[path] = version, min(ends, default=None)
        except OSError:
            return None
        return self._expiry_cache[path][1]
