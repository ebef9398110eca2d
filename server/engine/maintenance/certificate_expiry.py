"""Warns of expiring certificates, and of TLS versions that should not be configured.

The certificates are the instance's own. When they expire, other instances and clients refuse the
instance from one moment to the next, and operators do not expect that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from server.security.certificates import ends_of
from server.util.clock import no_timer
from server.util.safe_open import MAX_CERTIFICATE_FILE_SIZE, read_regular

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec, TlsSpec
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_DAY_SECONDS: Final = 86_400.0
NOTICE: Final = timedelta(days=30)
"""Time before the expiry of a certificate from which on the log warns of it."""

_INSECURE_VERSIONS: Final = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1")


class TlsUse(NamedTuple):
    """A use of TLS.

    Attributes:
        component: the user of the settings, for operators.
        tls: the settings.
    """

    component: str
    tls: TlsSpec


def uses_of_tls(spec: InstanceSpec) -> Iterator[TlsUse]:
    """Yield the uses of TLS in an instance."""
    for transport in spec.transports:
        if transport.tls is not None:
            yield TlsUse(f"transport {transport.name}", transport.tls)
    if spec.admin is not None and spec.admin.tls is not None:
        yield TlsUse("the admin interface", spec.admin.tls)
    for destination in spec.replication:
        for outgoing in destination.transports:
            if outgoing.tls is not None:
                yield TlsUse(f"destination {destination.name}", outgoing.tls)


def certificate_users(spec: InstanceSpec) -> dict[str, list[str]]:
    """Return the certificate files of an instance, with the users of each."""
    users: dict[str, list[str]] = {}
    for component, tls in uses_of_tls(spec):
        if tls.certificate is not None:
            users.setdefault(tls.certificate, []).append(component)
    return users


class CertificateCheck:
    """Checks certificates, at the start and once a day.

    Args:
        clock: the clock.
        log: gets the warnings.

    Attributes:
        users: the certificate files in use, with the users of each; replaced by a reload.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self.users: Mapping[str, list[str]] = {}
        self._tls_uses: list[TlsUse] = []
        self._clock: Final = clock
        self._log: Final = log
        self._cancel_timer: Callable[[], None] = no_timer

    def start(self, spec: InstanceSpec) -> None:
        """Log broken TLS versions, and begin to check certificates.

        Args:
            spec: the instance's description.
        """
        self.close()
        self._tls_uses = list(uses_of_tls(spec))
        self.users = certificate_users(spec)
        for component, tls in self._tls_uses:
            broken = [name for name in tls.protocols if name in _INSECURE_VERSIONS]
            if broken:
                self._log.emit("11-0012", who=component, versions=" ".join(broken))
        if self._tls_uses:
            self._check()

    def close(self) -> None:
        """Stop checking."""
        self._cancel_timer()

    def _check(self) -> None:
        self._cancel_timer = self._clock.call_later(_DAY_SECONDS, self._check)
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        for component, tls in self._tls_uses:
            if tls.certificate is None:
                continue
            try:
                expiry_times = read_expiry_times(tls.certificate)
            except OSError:
                continue
            for expiry in expiry_times:
                if expiry - now < NOTICE:
                    self._log_expiry(component, tls.certificate, expiry, now)

    def _log_expiry(
        self, component: str, path: str | None, expiry: datetime, now: datetime
    ) -> None:
        expiry_text = f"{expiry:%Y-%m-%d %H:%M:%S}Z"
        if expiry <= now:
            self._log.emit("11-0014", path=path, who=component, until=expiry_text)
        else:
            days_left = (expiry - now).days
            self._log.emit("11-0013", path=path, who=component, until=expiry_text, left=days_left)


def read_expiry_times(path: str) -> list[datetime]:
    """Return the expiry times of the certificates in a file.

    Raises:
        OSError: it cannot be read.
    """
    return ends_of(read_regular(path, MAX_CERTIFICATE_FILE_SIZE).decode("ascii", "replace"))
