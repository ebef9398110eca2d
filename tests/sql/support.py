"""A server process with topics and a transport for SQL, and clients of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.security.users import MODULES, write_users
from tests.support.server import RunningServer, environment, free_port, running_server
from tests.support.waiting import WAIT_SECONDS

TRANSPORT = """
<Transport>
  <Name>sql</Name><Type>{type}</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>postgresql</Protocol>{elements}
</Transport>
"""

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>prices</Name><MessageType>json</MessageType><Key>/symbol</Key>
    <Durability>transient</Durability>
  </Topic>
  <View>
    <Name>positions</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/symbol AS /symbol</Field><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/symbol</Field></Grouping>
  </View>
</SOW>
"""

ORDERS = [
    {
        "id": number,
        "symbol": ("IBM", "MSFT")[number % 2],
        "qty": number * 10,
        "price": number * 1.5,
        "live": number % 3 == 0,
    }
    for number in range(50)
]
PRICES = [{"symbol": "IBM", "bid": 120.5}, {"symbol": "MSFT", "bid": 410.25}]


def user(name: str, *topics: str, logon: bool = True, admin: str = "") -> str:
    """A user of a file of users, whose password is the name.

    Args:
        name: the name, one that `write_users` knows.
        topics: the permissions for topics, as the file has them.
        logon: whether the user may log on.
        admin: the permissions for the admin interface.
    """
    lines = [f"[users.{name}]", f'password = "{name.upper()}"', f"logon = {str(logon).lower()}"]
    lines += [f"topic = [{', '.join(topics)}]"] if topics else []
    lines += [f"admin = [{admin}]"] if admin else []
    return "\n".join(lines) + "\n"


EVERYTHING = '{ topic = ".*", read = true, write = true }'
"""The permission to read and write all topics."""

ANN = user("ann", EVERYTHING)
"""A user with this permission."""


class SqlServer(NamedTuple):
    """A server with a transport for SQL.

    Attributes:
        server: the server.
        port: where it takes SQL.
    """

    server: RunningServer
    port: int

    def publish(self, topic: str, *messages: dict[str, Any], **logon: Any) -> None:
        """Publish messages, and wait until they are stored."""
        with self.server.log_on("publisher", **logon) as peer:
            for message in messages:
                peer.send({"c": "publish", "t": topic}, json.dumps(message).encode())
            peer.flush()

    def connect(self, **terms: Any) -> psycopg.Connection[Any]:
        """A connection of psycopg, in autocommit mode."""
        terms = {"user": "tester", "dbname": "any", "autocommit": True, **terms}
        terms |= {"host": "127.0.0.1", "port": self.port, "connect_timeout": 30}
        return psycopg.connect(**terms)

    def psql(
        self,
        *commands: str,
        user: str = "tester",
        password: str = "",
        options: str = "-AtX",
        **settings: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run psql with some commands, and settings of the environment."""
        words = ["psql", options, "-h", "127.0.0.1", "-p", str(self.port), "-U", user, "-d", "any"]
        words += [word for command in commands for word in ("-c", command)]
        variables = settings | ({"PGPASSWORD": password} if password else {})
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            env=environment(**variables),
            check=False,
        )


def with_users(directory: Path, users: str) -> str:
    """Write a file of users; return the modules that check them, nothing without users."""
    if not users:
        return ""
    write_users(directory, users)
    return MODULES


@contextmanager
def sql_server(
    directory: Path,
    *,
    elements: str = "",
    transport_elements: str = "",
    transport_type: str = "tcp",
    topics: str = TOPICS,
    users: str = "",
) -> Iterator[SqlServer]:
    """A server with a transport for SQL; with `users`, a file of users checks passwords."""
    port = free_port()
    transport = TRANSPORT.format(port=port, type=transport_type, elements=transport_elements)
    elements += with_users(directory, users)
    with running_server(directory, elements=topics + elements, transports=transport) as server:
        yield SqlServer(server, port)
