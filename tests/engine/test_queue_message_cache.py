"""What a queue reads back from the log is what it had put on its shelf."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from server.queues.topic.delivery_batch import QueueDeliveryBatch
from server.queues.topic.message_cache import MessageCache
from server.topics.log_feed import RecordedBatch
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.topic_journal import TopicJournal, encode_messages
from tests.engine.support import Core


class Fed:
    """Two shelves that are fed the same: one has room for all of it, the other one for nothing."""

    def __init__(self, core: Core) -> None:
        log = core.transaction_log
        self.large = MessageCache(log, lambda topic: topic.name == "jobs")
        self.none = MessageCache(log, lambda topic: topic.name == "jobs", max_bytes=0)
        self.txids: list[int] = []

    def report_double_publish(
        self, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Not told here: nothing comes from another instance."""
        raise NotImplementedError

    def receive_batch(self, recorded: RecordedBatch) -> None:
        """See `LogFeed.receive_batch`."""
        self.large.cache_recorded(recorded)
        self.none.cache_recorded(recorded)
        self.txids += recorded.txids


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Fed]:
    """Runs and single messages of several publishers, with other things between them."""
    core = Core()
    core.record(tmp_path, ".*")
    fed = Fed(core)
    for name in ("ann", "bob"):
        core.log_on(name)
    ann, bob = core.engine.sessions
    jobs = TopicJournal(core.transaction_log, "json", "jobs", [fed])
    others = TopicJournal(core.transaction_log, "json", "others")
    number = 0
    for publisher in (ann, bob, ann, ann, bob):
        run = Envelope(publisher, 0)
        run.sequences = [number + step for step in (1, 2, 3, 5, 8)]
        bodies = [b'{"n":%d}' % each for each in run.sequences]
        entries = encode_messages(bodies, run, 0)
        end = 1
        while end < len(bodies):
            end = jobs.append_messages(run, entries, end).end
        number += 10
        others.append(Envelope(publisher, 0, sequence=number), b"{}")
        for correlation_id in ("x", "x", None, None, "y"):
            number += 1
            envelope = Envelope(publisher, 0, correlation_id, sequence=number)
            jobs.append(envelope, b'{"n":%d}' % number)
        jobs.append(Envelope(None, 0), b"nobody's")
    core.commit()
    yield fed
    core.transaction_log.close()


def shuffled(txids: Sequence[int]) -> Sequence[int]:
    """In any order."""
    return random.Random(7).sample(txids, len(txids))


ORDERS: Sequence[Callable[[Sequence[int]], Sequence[int]]] = [
    lambda txids: txids,
    lambda txids: txids[3:9],
    lambda txids: txids[::3],
    lambda txids: txids[::-1],
    lambda txids: txids[-1:],
    shuffled,
]


@pytest.mark.parametrize("order", ORDERS)
def test_messages_are_read_back_as_they_were(
    fed: Fed, order: Callable[[Sequence[int]], Sequence[int]]
) -> None:
    """In whatever order they are asked for, one by one and as what consumers are sent."""
    txids = order(fed.txids)
    kept, read = ([message for message in s.get(txids) if message] for s in (fed.large, fed.none))
    assert len(kept) == len(read) == len(txids)
    for before, after in zip(kept, read, strict=True):
        assert (before.body, before.bookmark, before.recorded_us) == (
            after.body,
            after.bookmark,
            after.recorded_us,
        )
        assert before.context.bookmark == after.context.bookmark
        assert before.context.correlation_id == after.context.correlation_id
    for position, part in enumerate(part for part in fed.none.find(txids) if part):
        run = QueueDeliveryBatch([part], b"")
        message = run.envelope(0)
        assert message.bookmark.encode() in message.header_keys, position
        assert len(run.bodies) == len(part.positions)


def test_what_is_gone_is_let_go_of(fed: Fed) -> None:
    """When all of it is that came together."""
    first, then = (part.batch.txids for part in fed.large.find(fed.txids[2:5]) if part)
    assert len(first) > 1
    fed.large.evict_before(first[-1])
    assert fed.large.find_cached(first[0]) is not None
    fed.large.evict_before(then[0])
    assert fed.large.find_cached(first[0]) is None
    assert fed.large.find_cached(then[0]) is not None
    fed.large.evict_before(None)
    assert fed.large.find_cached(fed.txids[-1]) is None
