"""The demonstration: whichever of two instances dies, nothing is lost, and nothing comes twice.

A publisher and a consumer have both instances of a pair as servers. The one that they are connected
to is killed; when it is back, the other one is. `make test-long` does that for longer, and
AMPERAGE_SEED repeats a run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from amperage.client import (
    BookmarkStorage,
    BookmarkStore,
    FileBookmarkStore,
    FilePublishStore,
    HAClient,
    PublishStorage,
    PublishStore,
)
from tests.client.shells import PATIENT
from tests.support.chances import chance_of
from tests.support.clocks import WallClock
from tests.support.cluster import DOWNGRADE, ORDERS, PAIR, Cluster, Instance, cluster
from tests.support.raw import QUICK_ACKS
from tests.support.server import RunningServer
from tests.support.sow import query
from tests.support.waiting import WAIT_SECONDS, wait_until

MESSAGES: Final = 3_000
STORES_OF_OPTIONS: Final = {"fully_durable": "file", "": "memory"}
"""The client's stores of usual runs, by the options of the consumer; long runs have all pairs."""

AHEAD: Final = (-86_400.0, -60.0, 3600.0, 86_400.0)
"""By how many seconds the clock of an instance that comes back may be ahead."""

PAUSE_SECONDS: Final = 1.0
ON_THE_WAY: Final = 200
"""Messages that may wait to be acknowledged, so that a publisher is busy when servers die."""


Stores = Callable[[Path], tuple[PublishStorage, BookmarkStorage]]

STORES: Final[dict[str, Stores]] = {
    "memory": lambda _: (PublishStore(), BookmarkStore()),
    "file": lambda directory: (
        FilePublishStore(directory / "messages"),
        FileBookmarkStore(directory / "bookmarks"),
    ),
}


class Publisher:
    """Publishes numbers, whatever happens to servers."""

    def __init__(self, client: HAClient) -> None:
        self.client = client
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything is published, and safe."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the publisher is stuck"
        self.client.publish_flush(WAIT_SECONDS)

    def _run(self) -> None:
        for number in range(1, MESSAGES + 1):
            while len(self.client.publish_store) >= ON_THE_WAY and not self.stop.is_set():
                time.sleep(0.002)
            if self.stop.is_set():
                return
            self.client.publish("orders", f'{{"id":{number}}}')


class Consumer:
    """Takes note of the numbers that come.

    Attributes:
        seen: all of them, in their order.
    """

    def __init__(self, client: HAClient, options: str | None) -> None:
        self.client = client
        self.seen: list[int] = []
        self._stream = client.subscribe(
            "orders", bookmark="recent", sub_id="numbers", options=options
        )
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for message in self._stream:
            self.seen.append(message.json()["id"])


@contextmanager
def programs(
    pair: Cluster, stores: tuple[PublishStorage, BookmarkStorage], options: str | None
) -> Iterator[tuple[Publisher, Consumer]]:
    """A publisher and a consumer, which prefer A."""
    messages, bookmarks = stores
    client = partial(
        HAClient,
        pair.uris("A", "B"),
        backoff=PATIENT,
        timeout=WAIT_SECONDS,
        logon_options={"options": QUICK_ACKS},
    )
    with (
        client("consumer", bookmark_store=bookmarks) as consuming,
        client("publisher", publish_store=messages) as publishing,
    ):
        consuming.connect()
        consumer = Consumer(consuming, options)
        publishing.connect()
        publisher = Publisher(publishing)
        try:
            yield publisher, consumer
        finally:
            publisher.stop.set()


def fail_over(
    publisher: Publisher,
    consumer: Consumer,
    dying: Instance,
    to: Instance,
    after: int,
    ahead: float,
) -> None:
    """Kill an instance when so many messages have come, and revive it when all have moved.

    Its clock is so many seconds ahead then, and is set right while it catches up; both stand still
    for a moment.
    """
    wait_until(lambda: len(consumer.seen) >= after, lambda: f"{len(consumer.seen)} have come")
    dying.kill()
    wait_until(
        lambda: all(
            one.client.server is not None and one.client.server.port == to.port
            for one in (publisher, consumer)
        ),
        f"not all have moved to {to.name}",
    )
    clock = WallClock(dying.directory / "clock")
    clock.set(ahead)
    dying.start(clock)
    clock.set(0.0)
    for instance in (to, dying):
        instance.freeze()
        time.sleep(PAUSE_SECONDS)
        instance.thaw()


def replay(server: RunningServer, topic: str = "orders") -> list[bytes]:
    """What a consumer gets that has seen nothing yet."""
    with server.log_on("auditor") as peer:
        peer.send({"c": "subscribe", "sub_id": "a", "t": topic, "bm": "0", "a": "completed"})
        bodies = []
        while (received := peer.receive())[0]["c"] != "ack":
            bodies.append(received[1])
        return bodies


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each kind of store with each option with `--long`, and with one of them otherwise."""
    if {"store", "options"} <= set(metafunc.fixturenames):
        pairs = list(product(STORES, STORES_OF_OPTIONS))
        usual = [(store, options) for options, store in STORES_OF_OPTIONS.items()]
        is_long = metafunc.config.getoption("--long")
        metafunc.parametrize(("store", "options"), pairs if is_long else usual)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_either_instance_of_a_pair_may_die(tmp_path: Path, store: str, options: str) -> None:
    """Each message is consumed once and in order, and both instances end with all of them."""
    chance = chance_of(f"{store} {options}")
    expected = list(range(1, MESSAGES + 1))
    with cluster(tmp_path, PAIR) as pair:
        for one, other in (("A", "B"), ("B", "A")):  # so that one always has what the other lacks
            pair.network.slow(one, other, 0.05)
        pair.start()
        with programs(pair, STORES[store](tmp_path), options or None) as (publisher, consumer):
            for dying, to, first, last in (("A", "B", 0, 1_300), ("B", "A", 1_600, 2_800)):
                after, ahead = chance.randrange(first, last), chance.choice(AHEAD)
                fail_over(publisher, consumer, pair[dying], pair[to], after, ahead)
            publisher.finish()
            wait_until(lambda: len(consumer.seen) >= MESSAGES, lambda: len(consumer.seen))
            assert consumer.seen == expected
        check(pair, expected)


def check(pair: Cluster, expected: list[int]) -> None:
    """See that both instances have everything once, in order, and the records of it."""
    for instance in pair:
        assert replay(instance.server) == [b'{"id":%d}' % one for one in expected]
        with instance.server.log_on("auditor") as peer:
            records = query(peer, "orders").messages
        assert sorted(record["id"] for record in records) == expected


@pytest.mark.long
@pytest.mark.timeout(600)
def test_who_is_away_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """The other instance goes on alone, and is left only when the first one has caught up."""
    chance = chance_of()
    expected = list(range(1, MESSAGES + 1))
    elements = ORDERS + DOWNGRADE.format(every="200ms", age="500ms")
    with cluster(tmp_path, PAIR, elements=elements) as pair:
        one, other = pair
        pair.start()
        with programs(pair, STORES["memory"](tmp_path), "fully_durable") as (publisher, consumer):
            after = chance.randrange(1_000)
            wait_until(lambda: len(consumer.seen) >= after, lambda: len(consumer.seen))
            one.kill()
            wait_until(lambda: len(consumer.seen) >= 1_500, lambda: len(consumer.seen))
            one.start()
            assert other.server.logs("upgraded from async to sync")
            other.kill()
            publisher.finish()
            wait_until(lambda: len(consumer.seen) >= MESSAGES, lambda: len(consumer.seen))
            assert consumer.seen == expected
            other.start()
        wait_until(lambda: len(replay(other.server)) == MESSAGES)
        check(pair, expected)


def test_messages_of_an_instance_that_dies_are_durable_enough(tmp_path: Path) -> None:
    """They are at both instances: subscribers of the other one do not wait for its downgrade."""
    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        with (
            pair["A"].server.log_on("reader") as reader,
            pair["B"].server.log_on("writer", opts=QUICK_ACKS) as writer,
        ):
            reader.send(
                {"c": "subscribe", "sub_id": "s", "t": "orders", "bm": "0"}
                | {"o": "fully_durable", "a": "processed", "cid": "s"}
            )
            assert reader.receive_header()["status"] == "success"
            for number in range(1, 51):
                writer.publish("orders", b'{"id":%d}' % number, s=number, a="persisted")
                while writer.receive_header()["s"] < number:
                    pass
            pair["B"].kill()
            assert [reader.receive()[1] for _ in range(50)] == [
                b'{"id":%d}' % number for number in range(1, 51)
            ]
