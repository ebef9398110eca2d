"""The address of the transport for the page's queries: SQLTransport, SQLTransportInetAddr.

Source: AMPS User Guide, Enabling Queries and Subscriptions in Galvanometer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.admin.http.messages import HttpRequest


@dataclass(frozen=True, slots=True)
class QueryTransport:
    """The transport for queries.

    Attributes:
        port: the port that it listens on, on the host that serves the page.
        is_secure: whether it uses TLS.
        external_address: the address that browsers use instead; it may lack the scheme.
    """

    port: int
    is_secure: bool
    external_address: str | None

    def url(self, request: HttpRequest) -> str:
        """Return its URL for the client that has sent a request."""
        if self.external_address:
            scheme = "wss" if request.is_encrypted or self.is_secure else "ws"
            return (
                self.external_address
                if "://" in self.external_address
                else f"{scheme}://{self.external_address}"
            )
        try:
            host = urlsplit(f"//{request.headers.get('host', '')}").hostname or "localhost"
        except ValueError:
            host = "localhost"
        host_text = f"[{host}]" if ":" in host else host
        return f"{'wss' if self.is_secure else 'ws'}://{host_text}:{self.port}"

    def csp_sources(self, request: HttpRequest) -> list[str]:
        """Return the sources that the policy of the requested page must allow."""
        try:
            address = urlsplit(self.url(request))
        except ValueError:
            return []
        if address.netloc.startswith("["):  # a policy has no form for these addresses
            return [f"{address.scheme}://*:{self.port}"]
        return [f"{address.scheme}://{address.netloc}"]


def query_transport(spec: InstanceSpec, admin: AdminSpec) -> QueryTransport | None:
    """Return the transport for queries; None if the configuration has none."""
    transport = next(
        (candidate for candidate in spec.transports if candidate.name == admin.sql_transport), None
    )
    if transport is None or transport.inet_addr is None:
        return None
    return QueryTransport(
        transport.inet_addr.port, transport.tls is not None, admin.sql_transport_inet_addr
    )
