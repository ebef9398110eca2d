"""Two instances replicate to each other, and their destinations change all the time."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin
from tests.cli.reload_support import reloaded
from tests.cli.test_ctl_reload_destinations import ADMIN, log_of
from tests.support.chances import chance_of, examples
from tests.support.cluster import ORDERS, PAIR, Cluster, Instance, cluster
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import free_port
from tests.support.waiting import wait_until

END: Final = "</Replication>"
CHANGES: Final = (
    ("<SyncType>sync", "<SyncType>async"),
    ("<AckConflation", "<Compression>zlib</Compression><AckConflation"),
    ("<Name>.*</Name>", "<Name>^(orders|trades)$</Name>"),
)
"""Texts of a destination, each with another one that may stand in its place."""


@dataclass
class Publisher(threading.Thread):
    """Publishes at an instance, and again what was not acknowledged when the instance ended.

    Attributes:
        instance: the instance.
        acknowledged: how many messages have been acknowledged.
        is_over: set when enough have been published.
    """

    instance: Instance
    acknowledged: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Publish, until it is over."""
        name = f"publisher at {self.instance.name}"
        while not self.is_over.wait(0.05):
            with suppress(OSError, EOFError), RawPeer(self.instance.port) as peer:
                assert peer.log_on(name, a="processed", o=QUICK_ACKS)["status"] == "success"
                while not self.is_over.is_set():
                    self._publish(peer)

    def _publish(self, peer: RawPeer) -> None:
        number = self.acknowledged + 1
        body = b'{"id":%d,"by":"%s"}' % (number % 5, self.instance.name.encode())
        peer.send({"c": "publish", "t": "orders", "s": number, "a": "persisted"}, body)
        while int((ack := peer.receive_header()).get("s", 0)) < number:
            pass
        assert ack["status"] == "success" or ack["reason"] == "duplicate"
        self.acknowledged = number


@dataclass(frozen=True)
class Member:
    """An instance of the pair.

    Attributes:
        instance: the instance.
        port: its admin interface.
        text: its configuration.
        other_port: another port that leads to its destination.
    """

    instance: Instance
    port: int
    text: str
    other_port: int

    def reload(self, text: str) -> None:
        """Have it run another configuration."""
        (self.instance.directory / "config.xml").write_text(text)
        reloaded(Admin(self.port, self.instance.server))

    def other_text(self, chances: random.Random) -> str:
        """A configuration in which the destination is another one, or is missing."""
        (element,) = re.findall("<Destination>.*</Destination>", self.text, re.DOTALL)
        if chances.random() < 0.2:
            return self.text.replace(element, "")
        changed = element
        for old, new in CHANGES:
            changed = changed.replace(old, chances.choice((old, new)))
        if chances.random() < 0.5:
            changed = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self.other_port}", changed)
        return self.text.replace(element, changed)


def members_of(pair: Cluster, ports: dict[str, int]) -> list[Member]:
    """The instances of the pair, with ways between them that they do not use yet."""
    texts = {one.name: (one.directory / "config.xml").read_text() for one in pair}
    listening = {
        name: int(re.findall(r"<InetAddr>127\.0\.0\.1:(\d+)", text)[1])
        for name, text in texts.items()
    }
    return [
        Member(
            pair[name],
            ports[name],
            texts[name],
            pair.network.lead(name, f"{other}, by another way", listening[other]),
        )
        for name, other in (("A", "B"), ("B", "A"))
    ]


@contextmanager
def publishing(members: list[Member]) -> Iterator[list[Publisher]]:
    """Publish at all instances meanwhile."""
    publishers = [Publisher(member.instance) for member in members]
    for publisher in publishers:
        publisher.start()
    try:
        yield publishers
    finally:
        for publisher in publishers:
            publisher.is_over.set()
        for publisher in publishers:
            publisher.join()


def waits_for_more(publishers: list[Publisher]) -> None:
    """Wait until all publishers go on."""
    for publisher in publishers:
        before = publisher.acknowledged
        wait_until(is_beyond(publisher, before))


def is_beyond(publisher: Publisher, count: int) -> Callable[[], bool]:
    """Whether more messages than so many are acknowledged."""
    return lambda: publisher.acknowledged > count


@pytest.mark.parametrize("run", range(examples(4, 1)))
def test_nothing_is_lost_or_comes_twice(tmp_path: Path, run: int) -> None:
    chances = chance_of(run)
    ports = {name: free_port() for name in ("A", "B")}
    admins = {name: ADMIN.format(port) for name, port in ports.items()}
    with cluster(tmp_path, PAIR, elements=ORDERS, of_each=admins) as pair:
        members = members_of(pair, ports)
        pair.start()
        with publishing(members) as publishers:
            for _ in range(8):
                member = chances.choice(members)
                member.reload(member.other_text(chances))
                if chances.random() < 0.4:
                    killed = chances.choice(members).instance
                    killed.kill()
                    killed.start()
            for member in members:
                member.reload(member.text)
            waits_for_more(publishers)
        logs = {one.name: log_of(one) for one in pair}
        assert sorted(logs["A"]) == sorted(logs["B"])
        assert len(set(logs["A"])) == len(logs["A"])
        assert len(logs["A"]) == sum(publisher.acknowledged for publisher in publishers)
