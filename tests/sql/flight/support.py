"""A server process with a transport for Flight SQL, and clients of it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from adbc_driver_flightsql import dbapi
from pyarrow import flight

from tests.sql.support import TOPICS, SqlServer, with_users
from tests.support.server import free_port, running_server

TRANSPORT = """
<Transport>
  <Name>flight</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>flight-sql</Protocol>{elements}
</Transport>
"""


class FlightServer(NamedTuple):
    """A server with a transport for Flight SQL.

    Attributes:
        sql: the server; its port is that of Flight SQL.
        scheme: how addresses begin.
    """

    sql: SqlServer
    scheme: str

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{self.scheme}://127.0.0.1:{self.sql.port}"

    def connect(self, user: str = "", password: str = "", **options: str) -> Any:
        """A connection of ADBC, in autocommit mode."""
        logon = {"username": user, "password": password} if user else {}
        return dbapi.connect(self.address, db_kwargs=logon | options, autocommit=True)

    def query(self, text: str, user: str = "", password: str = "") -> list[dict[str, Any]]:
        """The rows of a query."""
        with self.connect(user, password) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
            return rows

    def raw(self) -> flight.FlightClient:
        """A client of pyarrow.flight."""
        return flight.FlightClient(self.address)


def basic(user: str, password: str) -> flight.FlightCallOptions:
    """The options of a call that has a password."""
    text = base64.b64encode(f"{user}:{password}".encode())
    return flight.FlightCallOptions(headers=[(b"authorization", b"Basic " + text)])


def bearer(token: str) -> flight.FlightCallOptions:
    """The options of a call that has a token."""
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf that has bytes, at most 127 or 16,383 of them."""
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([number << 3 | 2]) + length + content


def packed(name: str, value: bytes = b"") -> bytes:
    """A message of Flight SQL in Any."""
    url = f"type.googleapis.com/arrow.flight.protocol.sql.{name}"
    return field(1, url.encode()) + field(2, value)


def query_command(text: str) -> bytes:
    """The command of a query."""
    return packed("CommandStatementQuery", field(1, text.encode()))


@contextmanager
def flight_server(
    directory: Path,
    *,
    elements: str = "",
    transport_elements: str = "",
    topics: str = TOPICS,
    scheme: str = "grpc",
    users: str = "",
) -> Iterator[FlightServer]:
    """A server with a transport for Flight SQL; see `sql_server`."""
    port = free_port()
    transport = TRANSPORT.format(port=port, elements=transport_elements)
    elements += with_users(directory, users)
    with running_server(directory, elements=topics + elements, transports=transport) as server:
        yield FlightServer(SqlServer(server, port), scheme)
