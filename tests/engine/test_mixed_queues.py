"""Traffic of several queues on one connection is handled in batches, and in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.engine.scheduler import LONG_READ_SIZE, ROUND_SECONDS
from server.queues.core import Acked, decode
from server.storage.journal import JournalEntryKind
from tests.engine.busy import busy_core
from tests.engine.queues import serve_queues
from tests.engine.support import Core, CorePeer
from tests.support.raw import frame

QUEUES = {f"jobs-{number}": f"work-{number}" for number in range(5)}


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """An engine with queues, whose work takes time when a test says so."""
    core = busy_core()
    core.clock.work_per_look = 0.0
    core.record(tmp_path, "^work")
    serve_queues(core, QUEUES)
    yield core
    core.transaction_log.close()


def consumer_of(core: Core, backlog: int = 100) -> CorePeer:
    """A consumer of all queues, with a subscription for each."""
    consumer = core.log_on("consumer")
    for queue in QUEUES:
        consumer.send(
            {"c": "subscribe", "sub_id": queue, "t": queue, "o": f"max_backlog={backlog}"}
        )
    consumer.take_frames()
    return consumer


def messages(count: int) -> bytes:
    """Publishes to the topics in turns."""
    topics = tuple(QUEUES.values())
    return b"".join(
        frame({"c": "publish", "t": topics[n % len(topics)], "s": n + 1}, b'{"n":%d}' % n)
        for n in range(count)
    )


def received(consumer: CorePeer) -> list[tuple[str, str, int]]:
    """Queue, bookmark and number of each message received."""
    return [
        (header["t"], header["bm"], json.loads(body)["n"])
        for header, body in consumer.take_frames()
        if header["c"] == "p"
    ]


def acknowledgement(queue: str, bookmark: str) -> bytes:
    """The command that acknowledges one message."""
    return frame({"c": "sow_delete", "t": queue, "bm": bookmark})


def test_acknowledgements_of_one_read_are_one_entry_per_queue(core: Core) -> None:
    """They are in the log once each, and the consumer gets as many messages again."""
    publisher, consumer = core.log_on("publisher"), consumer_of(core, backlog=4)
    publisher.send_bytes(messages(40))
    core.clock.turn()
    first = received(consumer)
    assert len(first) == 20
    commands = [acknowledgement(queue, bookmark) for queue, bookmark, _ in first]
    for command in commands[::4]:  # one of each queue, whose header is remembered
        consumer.send_bytes(command)
        commands.remove(command)
    before = core.transaction_log.last_txid
    consumer.send_bytes(b"".join(commands))
    core.clock.turn()
    core.commit()
    events = [
        decode(entry.body)
        for entry in core.transaction_log.journal.entries()
        if entry.kind == JournalEntryKind.QUEUE_EVENT and entry.txid > before
    ]
    acked = [len(event.bookmarks) for event in events if isinstance(event, Acked)]
    assert acked == [3] * len(QUEUES)
    numbers = [number for _, _, number in first + received(consumer)]
    assert sorted(numbers) == list(range(40))


def test_acknowledgements_of_several_reads_are_one_entry_per_queue(core: Core) -> None:
    """Unless the engine has nothing else to do in between."""
    publisher, consumer = core.log_on("publisher"), consumer_of(core)
    publisher.send_bytes(messages(40))
    core.clock.turn()
    commands = [acknowledgement(queue, bookmark) for queue, bookmark, _ in received(consumer)]
    for command in commands[::8]:  # one of each queue, whose header is remembered
        consumer.send_bytes(command)
        commands.remove(command)
    core.clock.turn()
    before = core.transaction_log.last_txid
    for command in commands:
        consumer.send_bytes(command)
    core.clock.turn()
    core.commit()
    events = [
        decode(entry.body)
        for entry in core.transaction_log.journal.entries()
        if entry.kind == JournalEntryKind.QUEUE_EVENT and entry.txid > before
    ]
    assert [len(event.bookmarks) for event in events] == [7] * len(QUEUES)


def test_acknowledgements_are_executed_before_their_client_is_gone(core: Core) -> None:
    """Its other messages return to their queues, and those that it has done with do not."""
    publisher, consumer = core.log_on("publisher"), consumer_of(core)
    publisher.send_bytes(messages(15))
    core.clock.turn()
    first = received(consumer)
    for queue, bookmark, _ in first[:10]:
        consumer.send_bytes(acknowledgement(queue, bookmark))
    consumer.leave()
    core.clock.turn()
    second = consumer_of(core)
    core.clock.turn()
    assert sorted(received(second)) == sorted(first[10:])


def test_messages_are_in_their_queue_before_a_slice_delivers_them(core: Core) -> None:
    """Who asks for the state of a queue, or acknowledges by bookmark, finds all of them."""
    publisher = core.log_on("publisher")
    publisher.send_bytes(messages(20))
    queues = core.engine.topics.queues
    queue = queues.find("json", "jobs-1") if queues is not None else None
    assert queue is not None
    assert (queue.core.depth, queue.core.counters.enqueued) == (4, 4)
    publisher.send_bytes(messages(25)[len(messages(20)) :])
    bookmarks = [
        f"{client}|{number}|" for client, number in queue.core.lifecycle.entries.bookmarks(range(5))
    ]
    publisher.send(
        {"c": "sow_delete", "t": "jobs-1", "bm": ",".join(bookmarks), "cid": "1", "a": "stats"}
    )
    stats = [header for header, _ in publisher.take_frames() if header.get("a") == "stats"]
    assert [header["records_deleted"] for header in stats] == [5]
    assert queue.core.depth == 0


def test_a_publish_behind_an_acknowledgement_is_recorded_behind_it(core: Core) -> None:
    """Also if both are in one read, and the acknowledgement could wait for others."""
    publisher, consumer = core.log_on("publisher"), consumer_of(core)
    publisher.send_bytes(messages(2 * len(QUEUES)))
    core.clock.turn()
    first = received(consumer)
    publish = frame({"c": "publish", "t": "work-other"}, b"{}")
    consumer.send_bytes(publish + acknowledgement(*first[0][:2]))
    before = core.transaction_log.last_txid
    consumer.send_bytes(acknowledgement(*first[1][:2]) + publish)
    core.commit()
    entries = [one for one in core.transaction_log.journal.entries() if one.txid > before]
    kinds = [JournalEntryKind.QUEUE_EVENT, JournalEntryKind.PUBLISH]
    assert [one.kind for one in entries] == kinds


def test_deliveries_wait_for_a_publisher_that_goes_on(core: Core) -> None:
    """Not for long: the consumer has got messages before the publisher is done."""
    publisher, consumer = core.log_on("publisher"), consumer_of(core, backlog=1000)
    publisher.send_bytes(messages(10))
    core.clock.turn()
    assert len(received(consumer)) == 10
    core.clock.work_per_look = 0.000_2
    publisher.send_bytes(
        b"".join(
            frame({"c": "publish", "t": topic, "cid": "1", "s": 11 + n}, b'{"n":%d}' % (10 + n))
            for n, topic in enumerate(20 * [*QUEUES.values()])
        )
    )
    assert publisher.is_paused
    deliveries: list[list[int]] = []
    while publisher.is_paused or sum(map(len, deliveries)) < 100:
        core.clock.turn()
        deliveries.append([number for _, _, number in received(consumer)])
        assert len(deliveries) < 1000
    assert not deliveries[0]
    made = [numbers for numbers in deliveries if numbers]
    assert len(made) > 1
    assert sorted(number for numbers in made for number in numbers) == list(range(10, 110))


@pytest.mark.parametrize("looks", range(3, 9))
def test_deliveries_do_not_wait_for_the_end_of_long_reads(core: Core, looks: int) -> None:
    """Even if each read uses up just the time of a round: some looks at the clock."""
    publisher, consumer = core.log_on("publisher"), consumer_of(core, backlog=100_000)
    topics, padding, sent = tuple(QUEUES.values()), b"x" * 10_000, 0

    def send_long_read() -> None:
        nonlocal sent
        read = b""
        while len(read) < LONG_READ_SIZE:
            body = b'{"n":%d,"padding":"%b"}' % (sent, padding)
            sent += 1
            read += frame({"c": "publish", "t": topics[sent % len(topics)], "s": sent}, body)
        publisher.send_bytes(read)
        core.clock.turn()

    for _ in range(10):  # until a read is one batch
        send_long_read()
    core.clock.advance(0)
    received(consumer)
    core.clock.work_per_look = ROUND_SECONDS / looks
    while not received(consumer):
        send_long_read()
        assert sent < 400
