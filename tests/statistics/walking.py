"""Two instances, of which the first does a known number of everything, and what it says of that."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from server.statistics.resources import RESOURCES
from server.statistics.schema import Resource
from tests.admin.support import Admin, tls_transport
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_configuration
from tests.support.waiting import wait_until
from tests.transports.support import Authority

PUBLISHED: Final = 40
"""Messages to a topic that keeps nothing."""

BODY: Final = b'{"id":1,"v":"......................"}'
FRAME: Final = b'....{"c":"p","t":"plain","sids":"plain","l":37}'
"""What stands before each of these messages when it is delivered."""

QUEUED: Final = 6
LEASED: Final = 4

_INSTANCE: Final = """
<AMPSConfig>
  <Name>{name}</Name>
  <Group>{name}</Group>
  <Description>what it is for</Description>
  <Environment>tests</Environment>
  <Admin><InetAddr>127.0.0.1:{admin}</InetAddr><Interval>1s</Interval></Admin>
  <Transports>
    <Transport>
      <Name>any-tcp</Name><Type>tcp</Type><Protocol>amps</Protocol>
      <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
    {transports}
  </Transports>
  <Logging>
    <Target><Protocol>stdout</Protocol><Level>info</Level></Target>
    {targets}
  </Logging>
  <TransactionLog>
    <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
    <Topic><Name>safe</Name><MessageType>json</MessageType></Topic>
    <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  {elements}
</AMPSConfig>
"""

_ACCEPTING: Final = """
<Transport>
  <Name>from-first</Name><Type>amps-replication</Type>
  <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
</Transport>
"""

_GUARDED: Final = """
<Transport>
  <Name>guarded</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <ReuseAddr>true</ReuseAddr><Protocol>amps</Protocol><MessageType>json</MessageType>
  <Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
</Transport>
<Transport>
  <Name>sql</Name><Type>tcp</Type><InetAddr>127.0.0.1:{sql}</InetAddr>
  <ReuseAddr>true</ReuseAddr><Protocol>postgresql</Protocol>
</Transport>
"""

_TARGETS: Final = """
<Target>
  <Protocol>file</Protocol><Level>info</Level><FileName>log-%n.txt</FileName>
  <RotationThreshold>1MB</RotationThreshold><ExcludeErrors>00-0042</ExcludeErrors>
</Target>
<Target>
  <Protocol>syslog</Protocol><Level>emergency</Level><Ident>walk</Ident>
  <Options>LOG_PID</Options><Facility>LOG_LOCAL3</Facility>
</Target>
"""

_TOPICS: Final = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>records.sow</FileName>
    <History><Window>1h</Window><Granularity>1s</Granularity></History>
  </Topic>
  <View>
    <Name>totals</Name><MessageType>json</MessageType>
    <UnderlyingTopic>records</UnderlyingTopic>
    <Projection><Field>/kind</Field><Field>SUM(/n) AS /n</Field></Projection>
    <Grouping><Field>/kind</Field></Grouping>
  </View>
  <ConflatedTopic>
    <Name>slowly</Name><MessageType>json</MessageType>
    <UnderlyingTopic>records</UnderlyingTopic><Interval>100ms</Interval>
    <Filter>/n &gt; 0</Filter>
  </ConflatedTopic>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType>
    <MaxBacklog>100</MaxBacklog><MaxPerSubscriptionBacklog>{leased}</MaxPerSubscriptionBacklog>
    <TargetQueueDepth>1000</TargetQueueDepth>
  </Queue>
</SOW>
<Replication>
  <Destination>
    <Name>to-second</Name><Group>second</Group><SyncType>sync</SyncType>
    <AckConflationInterval>10ms</AckConflationInterval>
    <Topic>
      <Name>safe</Name><MessageType>json</MessageType>
      <ExcludeValidation>sow,replicate</ExcludeValidation>
    </Topic>
    <Transport>
      <Type>amps-replication</Type><InetAddr>127.0.0.1:{second}</InetAddr>
    </Transport>
  </Destination>
</Replication>
<Actions>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
    <Do><Module>amps-action-do-disable-entitlement</Module></Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR2</Signal></Options></On>
    <Do><Module>amps-action-do-enable-entitlement</Module></Do>
  </Action>
</Actions>
"""

Entries = dict[str, dict[str, str]]
"""By id, the fields of an entry by name; a resource that is one entry has it under no id."""


class Walk:
    """A server that has been used, and what it says of itself.

    Attributes:
        entries: of each resource by its path.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.entries: dict[str, Entries] = {}

    def read(self) -> None:
        """Read everything."""
        document = self._admin.tree()["amps"]
        self.entries = {one.path: _entries(document, one) for one in RESOURCES}

    def until(self, path: str, entry: str, **fields: str) -> None:
        """Wait until fields of an entry have some values."""

        def has_come() -> bool:
            self.read()
            found = self.entries[path].get(entry, {})
            return all(found.get(name) == value for name, value in fields.items())

        wait_until(has_come, lambda: f"{fields}: {self.entries[path]}")


def _entries(document: Any, resource: Resource) -> Entries:
    """The entries of a resource in the document of everything."""
    for name in resource.path.split("/"):
        document = document.get(name, {})
    if resource.entry:
        return {one["id"]: one for one in document}
    return {"": document}


def _use(first: Admin, guarded: int, stack: ExitStack) -> None:
    """Do a known number of everything."""
    server = first.server
    subscriber = stack.enter_context(server.log_on("subscriber", version="9.8.7", x="corr"))
    subscriber.subscribe("plain", "plain", filter="/id > 0")
    publisher = stack.enter_context(server.log_on("publisher"))
    for _ in range(PUBLISHED):
        publisher.publish("plain", BODY)
    publisher.flush()
    for _ in range(PUBLISHED):
        subscriber.receive()
    for n in (1, 2, 3, 4, 3, 2):  # 4 are new, 2 replace
        body = json.dumps({"id": n, "kind": n % 2, "n": 7}).encode()
        publisher.publish("records", body)
    publisher.flush()
    deletion = {"c": "sow_delete", "t": "records", "filter": "/id = 4", "cid": "d"}
    assert publisher.ask(deletion | {"a": "completed"})["a"] == "completed"
    _query(publisher)
    _query(publisher)
    _page(stack.enter_context(server.log_on("reader")))
    for n in range(3):
        publisher.publish("safe", b'{"n":%d}' % n)
    for n in range(QUEUED):
        publisher.publish("work", b'{"n":%d}' % n)
    publisher.flush()
    _lease(stack.enter_context(server.log_on("worker")))
    replayer = stack.enter_context(server.log_on("replayer"))
    replayer.subscribe("safe", "replay", bm="0")
    for _ in range(3):
        replayer.receive()
    _be_denied(first, stack.enter_context(RawPeer(guarded)))


def _sql_client(port: int) -> psycopg.Connection[Any]:
    return psycopg.connect(f"host=127.0.0.1 port={port} user=sql", autocommit=True)


def _ask_by_sql(client: psycopg.Connection[Any]) -> None:
    """Execute two statements, of which the second fails."""
    client.execute("SELECT 1 WHERE false").fetchall()
    with contextlib.suppress(psycopg.errors.UndefinedColumn):
        client.execute("SELECT nothing")


def _query(peer: RawPeer) -> None:
    peer.send({"c": "sow", "t": "records", "query_id": "q", "cid": "q", "a": "completed", "bs": 2})
    while peer.receive()[0]["c"] != "ack":
        pass


def _page(peer: RawPeer) -> None:
    peer.send(
        {"c": "sow_and_subscribe", "t": "records", "sub_id": "page", "query_id": "page", "cid": "p",
         "a": "completed", "opts": "skip_n=0,top_n=2", "orderby": "/id"}
    )  # fmt: skip
    while peer.receive()[0]["c"] != "ack":
        pass


def _lease(peer: RawPeer) -> None:
    """Take as many messages of the queue as it gives, and acknowledge one."""
    peer.subscribe("work", "work", opts=f"max_backlog={LEASED}")
    bookmarks = [peer.receive()[0]["bm"] for _ in range(LEASED)]
    peer.send({"c": "sow_delete", "t": "work", "bm": bookmarks[0]})
    peer.receive()  # the next one


def _be_denied(first: Admin, peer: RawPeer) -> None:
    """Log on while entitlement is off, and try to read twice and to write once when it is on."""
    first.server.process.send_signal(signal.SIGUSR1)
    assert first.server.logs("entitlement switched off")
    assert peer.log_on("denied")["status"] == "success"
    first.server.process.send_signal(signal.SIGUSR2)
    assert first.server.logs("entitlement switched on")
    for _ in range(2):
        assert peer.subscribe("plain", "denied")["reason"] == "not entitled"
    ack = peer.ask({"c": "publish", "t": "plain", "cid": "w", "a": "processed"}, b"{}")
    assert ack["reason"] == "not entitled"


@contextmanager
def _instance(
    directory: Path, name: str, *, transports: str, targets: str = "", elements: str = ""
) -> Iterator[Admin]:
    """An instance with an admin interface."""
    port, admin = free_port(), free_port()
    text = _INSTANCE.format(
        name=name,
        admin=admin,
        port=port,
        transports=transports,
        targets=targets,
        elements=elements,
    )
    with running_configuration(directory, text, port) as server:
        yield Admin(admin, server)


@contextmanager
def walked(first_directory: Path, second_directory: Path) -> Iterator[Walk]:
    """Two instances, of which the first has been used, and what it says when all has been told.

    Args:
        first_directory: where the first one runs.
        second_directory: where the one runs that it replicates to.
    """
    accepting, guarded, sql = free_port(), free_port(), free_port()
    with ExitStack() as stack:
        second = _instance(second_directory, "second", transports=_ACCEPTING.format(port=accepting))
        stack.enter_context(second)
        first = stack.enter_context(
            _instance(
                first_directory,
                "first",
                transports=_GUARDED.format(port=guarded, sql=sql)
                + tls_transport(Authority(first_directory, "servers")),
                targets=_TARGETS,
                elements=_TOPICS.format(second=accepting, leased=LEASED),
            )
        )
        _use(first, guarded, stack)
        _ask_by_sql(stack.enter_context(_sql_client(sql)))
        walk = Walk(first)
        settled = {"is_connected": "1", "messages_out": "3", "seconds_behind": "0"}
        walk.until("instance/replication", "to-second", **settled)
        walk.until("instance/sow", "slowly!json", valid_keys="3")
        walk.until("instance/queues", "work!json", backlog=str(LEASED))
        walk.until("instance/sql", "", failed="1")
        walk.until("instance/processors", "all", denied_writes="1")
        yield walk
