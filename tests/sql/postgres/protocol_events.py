"""Protocols in a state, and checks of their next event."""

from __future__ import annotations

from typing import Any

from server.sql.postgres.events import (
    ProtocolFailed,
    Reply,
    StartupRequested,
)
from server.sql.postgres.protocol import (
    PostgresProtocol,
)
from tests.sql.postgres.support import (
    error_fields,
    kinds,
    query,
    startup,
)

Protocol = PostgresProtocol[Any, Any]


def open_protocol(**arguments: Any) -> Protocol:
    """A connection that has been authenticated."""
    protocol: Protocol = PostgresProtocol(**arguments)
    protocol.feed(startup(user="ada"))
    assert protocol.next_event() == StartupRequested("ada", "ada", {})
    assert kinds(protocol.accept(1, 2, {"server_version": "16.0"})) == "RSKZ"
    return protocol


def failed(protocol: Protocol, code: str = "08P01", problem: str = "") -> None:
    """The next event is the end of the connection."""
    event = protocol.next_event()
    assert isinstance(event, ProtocolFailed)
    fields = error_fields(event.data)
    assert (fields["S"], fields["C"]) == ("FATAL", code)
    assert problem in fields["M"]
    assert protocol.is_closed
    protocol.feed(query("select 1"))
    assert protocol.next_event() is None
    assert protocol.buffered_size == 0


def refused(protocol: Protocol, code: str) -> None:
    """The next event is an error in the extended protocol."""
    event = protocol.next_event()
    assert isinstance(event, Reply)
    fields = error_fields(event.data)
    assert (fields["S"], fields["C"]) == ("ERROR", code)
