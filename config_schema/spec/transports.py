"""The transports that clients and upstream instances connect to."""

from dataclasses import dataclass
from typing import Literal

from config_schema.problems import Location
from config_schema.spec.common import InetAddr, ModuleUse, SlowClientLimits, TlsSpec

TransportType = Literal["tcp", "tcps", "amps-unix", "amps-replication", "amps-replication-secure"]


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """One Transport. `protocol` names a built-in protocol or a ProtocolSpec.

    `inet_addr` is None for amps-unix, `file_name` and `file_mask` are set only there.
    `message_type` restricts the transport to that type. `tls` is set whenever a certificate is
    given, which makes connections encrypted also for the type tcp.
    Source: AMPS User Guide, Configuring Transports.
    """

    name: str
    type: TransportType
    protocol: str
    inet_addr: InetAddr | None
    message_type: str | None
    initial_state_enabled: bool
    reuse_addr: bool
    file_name: str | None
    file_mask: int | None
    tls: TlsSpec | None
    authentication: ModuleUse | None
    entitlement: ModuleUse | None
    filters: tuple[ModuleUse, ...]
    limits: SlowClientLimits
    per_message_deflate: bool
    http_headers: tuple[str, ...]
    location: Location

    @property
    def is_replication(self) -> bool:
        """True if upstream instances, and no applications, connect here."""
        return self.type in ("amps-replication", "amps-replication-secure")


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """A named variant of a built-in protocol."""

    name: str
    module: str
    www_authenticate: str | None
    trusted_admin: bool
    http_headers: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    location: Location
