"""`amps-ctl reload`: random changes of topics, compared with a server started on the same file."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, reloaded, running
from tests.cli.test_ctl import ctl
from tests.cli.topic_elements import conflated, queue, recorded, records, topic, view
from tests.support.chances import chance_of, examples
from tests.support.long_form import spread
from tests.support.queues import done, make_safe
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_configuration
from tests.support.sow import query
from tests.support.waiting import wait_until

LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>logged-.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
SOW: Final = f"<SOW>{topic('fixed', '<FileName>fixed.sow</FileName>')}</SOW>"


@dataclass(frozen=True)
class Part:
    """An element that may be in the configuration.

    Attributes:
        element: its text.
        section: where it is.
        source: the part that it is made from, if it is made from one.
    """

    element: str
    section: str = "SOW"
    source: str = ""


PARTS: Final = {
    "file": Part(topic("file", "<FileName>file.sow</FileName>")),
    "memory": Part(topic("memory")),
    "logged-file": Part(topic("logged-file", "<FileName>logged-file.sow</FileName>")),
    "logged-memory": Part(topic("logged-memory")),
    "logged-many": Part(
        topic("logged-many", "<Pattern>^logged-many-</Pattern><Durability>transient</Durability>")
    ),
    "fixed-counts": Part(view("fixed-counts", "fixed")),
    "counts": Part(view("counts", "logged-memory"), source="logged-memory"),
    "sums": Part(view("sums", "fixed-counts"), source="fixed-counts"),
    "copies": Part(conflated("copies", "fixed")),
    "logged-copies": Part(conflated("logged-copies", "logged-file"), source="logged-file"),
    "work": Part(queue("work", "logged-work")),
    "extra": Part(recorded("extra"), "TransactionLog"),
}
"""The parts, each after its sources."""

TOPICS: Final = (
    "fixed",
    "file",
    "memory",
    "logged-file",
    "logged-memory",
    "logged-many-1",
    "logged-work",
    "extra",
)
"""The topics that messages are published to."""
OF_PATTERNS: Final = {"logged-many": "logged-many-1"}
"""The topics that have their records by a Pattern."""


@dataclass
class Model:
    """What the instance has.

    Attributes:
        parts: the parts in its configuration.
        records: the records of each SOW topic, by their ids.
        logged: the last messages of topics in the transaction log, by their ids.
        opened: the files that are open.
    """

    parts: frozenset[str] = frozenset()
    records: dict[str, dict[int, bytes]] = field(default_factory=lambda: {"fixed": {}})
    logged: dict[str, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    opened: set[str] = field(default_factory=set)

    def publish(self, name: str, number: int, body: bytes) -> None:
        """Note a message."""
        if name in self.records:
            self.records[name][number] = body
        if name.startswith("logged-") or (name == "extra" and name in self.parts):
            self.logged[name][number] = body

    def refuses(self, wanted: frozenset[str]) -> bool:
        """Whether a reload of these parts needs a restart."""
        return bool("extra" in self.parts - wanted or self.opened & (wanted - self.parts))

    def use(self, wanted: frozenset[str]) -> None:
        """Note that these parts are in the configuration."""
        for name in self.parts - wanted:
            self.records.pop(OF_PATTERNS.get(name, name), None)
        for name in wanted - self.parts:
            owner = OF_PATTERNS.get(name, name)
            if owner in TOPICS and name != "extra":
                self.records[owner] = dict(self.logged.get(owner, {}))
            if "FileName" in PARTS[name].element:
                self.opened.add(name)
        self.parts = wanted


def choose(chance: random.Random, present: frozenset[str]) -> frozenset[str]:
    """Other parts than there are, each with what it is made from."""
    wanted = set(present)
    for name in chance.sample(list(PARTS), chance.randint(1, 3)):
        wanted ^= {name}
    for name, part in PARTS.items():
        if part.source and part.source not in wanted:
            wanted.discard(name)
    return frozenset(wanted)


def text_of(original: str, parts: frozenset[str]) -> str:
    """The configuration with some parts."""
    for name, part in PARTS.items():
        if name in parts:
            end = f"</{part.section}>"
            original = original.replace(end, part.element + end)
    return original


def publish(chance: random.Random, model: Model, peer: RawPeer) -> None:
    """Publish some messages to all topics, whatever they are at the moment."""
    for _ in range(chance.randint(0, 40)):
        name, number = chance.choice(TOPICS), chance.randint(1, 8)
        body = b'{"id":%d,"g":%d,"v":%d}' % (number, number % 3, chance.randint(0, 9))
        peer.publish(name, body)
        model.publish(name, number, body)
    peer.flush()
    if "work" in model.parts:
        done(peer, "work", filter=f"/id = {chance.randint(1, 8)}")


def compare(admin: Admin, model: Model, directory: Path) -> None:
    """Compare queries with those of a server that is started on the same file."""
    make_safe(admin.server)
    fresh = directory.with_name("fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    with admin.server.log_on("query") as peer:
        for name, expected in model.records.items():
            assert records(peer, name) == sorted(expected.values()), name
        shutil.copytree(directory, fresh)
        port, text = free_port(), configuration(admin.server).read_text()
        text = text.replace(f":{admin.server.port}<", f":{port}<")
        text = text.replace(f":{admin.port}<", f":{free_port()}<")
        with running_configuration(fresh, text, port) as server, server.log_on("query") as other:
            for name in ("fixed", *OF_PATTERNS.values(), *PARTS):
                if name != "memory":
                    wait_until_equal(peer, other, name)


def wait_until_equal(peer: RawPeer, other: RawPeer, name: str) -> None:
    """Wait until two servers have the same records of a topic."""
    wait_until(
        lambda: records(peer, name) == records(other, name),
        lambda: f"{name}: {records(peer, name)} {records(other, name)}",
    )


@pytest.mark.parametrize("number", spread(range(16), 1))
def test_random_reloads_are_whole_or_refused(tmp_path: Path, number: int) -> None:
    chance, model = chance_of(number), Model()
    directory = tmp_path / "server"
    directory.mkdir()
    with (
        running_admin(directory, elements=LOG + SOW) as admin,
        admin.server.log_on("publisher") as peer,
        admin.server.log_on("subscriber") as subscriber,
    ):
        subscriber.subscribe("file|copies|logged-.*", "some")  # also while they come and go
        file = configuration(admin.server)
        original = file.read_text()
        for _ in range(examples(20, 6)):
            publish(chance, model, peer)
            wanted, before = choose(chance, model.parts), running(admin)
            file.write_text(text_of(original, wanted))
            done = ctl(admin, "reload")
            assert (done.returncode != 0) == model.refuses(wanted), (wanted, done, model)
            if done.returncode:
                assert "needs a restart" in done.stderr
                assert running(admin) == before
                file.write_text(text_of(original, model.parts))
            else:
                model.use(wanted)
            publish(chance, model, peer)
            compare(admin, model, directory)


def publish_until(peer: RawPeer, is_over: threading.Event) -> list[int]:
    """Publish ascending numbers under some ids, and return them."""
    number = 0
    while not is_over.is_set():
        for _ in range(20):
            number += 1
            peer.publish("logged-memory", b'{"id":%d,"g":1,"v":%d}' % (number % 50, number))
        time.sleep(0.005)
    peer.flush()
    return list(range(1, number + 1))


def test_nothing_that_is_published_during_reloads_is_missed(tmp_path: Path) -> None:
    """By subscribers and, as it is in the log, by records, a view and a queue."""
    work = queue("work", "logged-memory")
    passing = PARTS["logged-memory"].element + PARTS["counts"].element + work
    is_over = threading.Event()
    with (
        running_admin(tmp_path, elements=LOG + SOW) as admin,
        admin.server.log_on("publisher") as publisher,
        admin.server.log_on("subscriber") as subscriber,
        admin.server.log_on("query") as peer,
        ThreadPoolExecutor(1) as pool,
    ):
        subscriber.subscribe("logged-memory", "1")
        published = pool.submit(publish_until, publisher, is_over)
        try:
            for _ in range(3):
                edit(admin, "</SOW>", f"{passing}</SOW>")
                reloaded(admin)
                edit(admin, passing, "")
                reloaded(admin)
            edit(admin, "</SOW>", f"{passing}</SOW>")
            reloaded(admin)
        finally:
            is_over.set()
        numbers = published.result()
        last = {number % 50: number for number in numbers}
        assert records(peer, "logged-memory") == sorted(
            b'{"id":%d,"g":1,"v":%d}' % item for item in last.items()
        )
        assert records(peer, "counts") == [
            b'{"g":1,"n":%d,"v":%.1f}' % (len(last), sum(last.values()))
        ]
        assert [message["v"] for message in query(peer, "work").messages] == numbers
        heard = [subscriber.receive()[1] for _ in numbers]
        assert heard == [b'{"id":%d,"g":1,"v":%d}' % (number % 50, number) for number in numbers]
