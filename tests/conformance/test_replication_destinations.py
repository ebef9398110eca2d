"""What goes to a destination, by which connection, and who waits for it."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.test_replication_connections import LISTENING, destination, named_server, to
from tests.replication.topologies import Link, Topology
from tests.support.cluster import ORDERS, PAIR, cluster
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.replication_peer import BATCH, BEGIN, HELLO, RESUME, Listening, frame
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import comes_true

LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>.*</Name><MessageType>nvfix</MessageType></Topic>
</TransactionLog>
"""
DESTINATION = """
<Destination>
  <Name>{name}</Name><SyncType>sync</SyncType>
  <AckConflationInterval>10ms</AckConflationInterval>
  <Topic>
    <Name>{topic}</Name><MessageType>json</MessageType>{filter}
    <ExcludeValidation>replicate,sow</ExcludeValidation>
  </Topic>
  {transport}
</Destination>
"""


def publish(peer: RawPeer, topic: str, number: int, **more: str) -> None:
    """Publish a message, and wait until all destinations have it that are waited for."""
    header = {"c": "publish", "t": topic, "s": number, "a": "persisted"}
    peer.send(header | more, b'{"id":%d,"n":%d}' % (number, number))
    while int((head := peer.receive_header()).get("s", 0)) < number:
        pass
    assert head["status"] == "success"


def past(server: RunningServer, count: int) -> list[tuple[str, bytes]]:
    """The messages in the log of a server, of all topics, and nothing behind them."""
    with server.log_on("reader") as reader:
        reader.send({"c": "subscribe", "cid": "1", "t": ".*", "bm": "0"})
        came = [reader.receive() for _ in range(count)]
        assert reader.hears_nothing()
    return [(head["t"], body) for head, body in came]


WANTED = {
    # topics, filter, and which of the messages below
    "by name": ("orders", "", (1, 2, 5)),
    "by expression": ("^(orders|trades)$", "", (1, 2, 4, 5)),
    "by content": (".*", "<Filter>/n &gt; 2</Filter>", (3, 4, 5)),
}
PUBLISHED = ("orders", "orders", "log", "trades", "orders")


def test_a_destination_gets_the_topics_and_messages_that_it_is_for(tmp_path: Path) -> None:
    """Of the message type of the Topic; the publisher does not wait for what goes nowhere."""
    with ExitStack() as stack:
        sinks, destinations = {}, []
        for number, (what, (topic, content, _)) in enumerate(WANTED.items()):
            port, name = free_port(), f"sink-{number}"
            (tmp_path / name).mkdir()
            listening = LISTENING.format(kind="amps-replication", port=port, elements="")
            running = named_server(tmp_path / name, name, LOG, listening)
            sinks[what] = stack.enter_context(running)
            destinations.append(
                DESTINATION.format(name=name, topic=topic, filter=content, transport=to(port))
            )
        (tmp_path / "source").mkdir()
        elements = ORDERS + LOG + f"<Replication>{''.join(destinations)}</Replication>"
        source = stack.enter_context(named_server(tmp_path / "source", "source", elements))
        with source.log_on("other", "nvfix", a="processed", o=QUICK_ACKS) as other:
            publish(other, "orders", 1)
        with source.log_on("publisher", a="processed", o=QUICK_ACKS) as publisher:
            for number, topic in enumerate(PUBLISHED, 1):
                publish(publisher, topic, number)
        for what, (_, _, numbers) in WANTED.items():
            expected = [
                (PUBLISHED[number - 1], b'{"id":%d,"n":%d}' % (number, number))
                for number in numbers
            ]
            assert past(sinks[what], len(expected)) == expected, what


def test_what_came_from_elsewhere_is_passed_on_by_group(tmp_path: Path) -> None:
    """Without PassThrough, only what is published at the instance itself goes on."""
    links = (
        Link("A", "B"),
        Link("B", "C", pass_through=()),
        Link("B", "D", pass_through=("^first$",)),
        Link("B", "E", pass_through=("^second$",)),
    )
    groups = {"A": "first", "B": "second"}
    with cluster(tmp_path, Topology("passing on", links, (), groups)) as instances:
        instances.start()
        for name in ("A", "B"):
            with instances[name].server.log_on(f"at {name}", a="processed", o=QUICK_ACKS) as peer:
                publish(peer, name, 1)
        body = b'{"id":1,"n":1}'
        assert past(instances["D"].server, 2) == [("A", body), ("B", body)]
        for name in ("C", "E"):
            assert past(instances[name].server, 1) == [("B", body)]


def established(*ports: int) -> int:
    """How many connections there are that have been made to these ports."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [line.split()[1:4] for line in lines]
    return sum(int(local[-4:], 16) in ports and state == "01" for local, _, state in ends)


def test_a_pair_has_one_connection(tmp_path: Path) -> None:
    """Both connect to each other, and one of the two connections stays."""
    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        servers = [instance.server for instance in pair]
        for server in servers:
            assert server.logs("1F-0009")
        listening = re.compile(r"Transport\[replication\] listening on 127\.0\.0\.1:(\d+)")
        ports = [int(listening.findall(server.log())[-1]) for server in servers]
        assert comes_true(lambda: established(*ports) == 1)
        for server in servers:
            with server.log_on(f"at {server.port}", a="processed", o=QUICK_ACKS) as peer:
                publish(peer, "orders", 1)
        assert established(*ports) == 1


@pytest.mark.parametrize("compression", ["", "<Compression>zlib</Compression>"])
def test_the_source_says_whether_messages_are_compressed(tmp_path: Path, compression: str) -> None:
    with (
        Listening() as address,
        running_server(tmp_path, elements=destination(compression + to(address.port))) as server,
    ):
        peer = address.accept()
        assert peer.receive().kind == HELLO
        peer.greet()
        assert peer.receive().kind == BEGIN
        peer.send_bytes(frame(RESUME, 0, None))
        with server.log_on("publisher") as publisher:
            publisher.send({"c": "publish", "t": "orders"}, b"x" * 10_000)
            kind = 0
            while kind != BATCH:
                length, kind, flags = int.from_bytes(peer.take(4), "little"), *peer.take(2)
                payload = peer.take(length - 2)
    assert (flags, len(payload) < 1000) == ((1, True) if compression else (0, False))


def test_nobody_waits_for_an_async_destination(tmp_path: Path) -> None:
    elements = destination(to(free_port()))
    with (
        running_server(tmp_path, elements=elements) as server,
        server.log_on("publisher", a="processed", o=QUICK_ACKS) as publisher,
    ):
        publish(publisher, "orders", 1)


DOWNGRADE = """
<Actions>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
    <Do>
      <Module>amps-action-do-downgrade-replication</Module><Options><Age>0s</Age></Options>
    </Do>
  </Action>
</Actions>
"""


def test_a_downgrade_ends_with_the_process(tmp_path: Path) -> None:
    """After a restart, publishers wait for the destination again."""
    with cluster(tmp_path, PAIR, elements=ORDERS + DOWNGRADE) as pair:
        a = pair["A"]
        a.start()
        with a.server.log_on("publisher", a="processed", o=QUICK_ACKS) as publisher:
            publisher.send({"c": "publish", "t": "orders", "s": 1, "a": "persisted"}, b'{"id":1}')
            assert publisher.hears_nothing()
            a.server.process.send_signal(signal.SIGUSR1)
            assert publisher.receive_header()["status"] == "success"
            publish(publisher, "orders", 2)
        a.kill()
        a.start()
        with a.server.log_on("publisher", a="processed", o=QUICK_ACKS) as publisher:
            publisher.send({"c": "publish", "t": "orders", "s": 3, "a": "persisted"}, b'{"id":1}')
            assert publisher.hears_nothing()
            pair["B"].start()
            assert int(publisher.receive_header()["s"]) == 3
