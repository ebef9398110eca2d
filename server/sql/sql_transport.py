"""The properties of a transport that speaks PostgreSQL's protocol."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.sql.tables.statistics_table import NO_STATISTICS, StatisticsAccess

if TYPE_CHECKING:
    from server.sql.services import SqlServices


@dataclass(slots=True)
class TlsUpgrade:
    """The TLS of a transport whose clients ask for it after they have connected.

    Attributes:
        is_required: whether the transport is secured: clients without TLS are refused.
        context: the TLS context of new connections; None while the transport is closed.
        channel_binding: the hash of its certificate, which SCRAM may bind a logon to; empty if the
            certificate has none.
    """

    is_required: bool = False
    context: ssl.SSLContext | None = None
    channel_binding: bytes = b""


@dataclass(frozen=True, slots=True)
class SqlTransport:
    """The properties of a transport that speaks PostgreSQL's protocol.

    Attributes:
        services: what all SQL connections share.
        tls: its TLS.
        asks_for_passwords: whether clients have to give a password.
        statistics: decides who may see statistics.
    """

    services: SqlServices
    tls: TlsUpgrade
    asks_for_passwords: bool
    statistics: StatisticsAccess = NO_STATISTICS
