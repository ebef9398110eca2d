"""Random work on a queue, beside a model of it that is plain to see.

What is delivered must be the same, to the message and to the consumer; and after a restart, which
folds the record again, what is there must be the same.
"""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings as run_with
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.queues.core import (
    AckOutcome,
    MessageDetails,
    Queue,
    QueueEvent,
    QueueSettings,
    decode,
    encode,
)
from server.queues.core.inspection import all_offsets, available, message
from tests.queues.model import NEVER, Message, Model
from tests.queues.support import PUBLISHER, SECOND, Bench, CountingMatching, Drawer, marks
from tests.support.chances import examples

NAMES = ("ann", "bob", "cy", "dee")
FILTERS = st.sampled_from([None, None, "even", "odd", "thirds", "nothing"])
DELAYS = st.sampled_from([0, 0, SECOND, 5 * SECOND])

ways_to_be = st.builds(
    QueueSettings,
    at_most_once=st.booleans(),
    lease_period=st.sampled_from([None, 3 * SECOND]),
    max_backlog=st.sampled_from([None, 4]),
    max_per_subscription_backlog=st.sampled_from([1, 3, 10]),
    expiration=st.sampled_from([None, 20 * SECOND]),
    expiration_model=st.sampled_from(["queue", "latest", "earliest", "default"]),
    fairness=st.sampled_from(["fast", "round-robin", "proportional"]),
    max_deliveries=st.sampled_from([0, 2]),
    max_cancels=st.sampled_from([0, 2]),
    prioritized=st.booleans(),
    keyed=st.booleans(),
    deferred_ack_expiration=st.just(10 * SECOND),
)


@pytest.fixture(autouse=True)
def forgets_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has left a queue is forgotten before there are a thousand messages of it."""
    monkeypatch.setattr("server.queues.core.bookmark_index._MIN_COMPACTED", 0)


@pytest.fixture(autouse=True)
def blocks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they are full, and put away, after a few messages."""
    for name, value in (("SHIFT", 2), ("SIZE", 4), ("WITHIN", 3), ("_MAX_COLUMN_BYTES", 32)):
        monkeypatch.setattr(f"server.queues.core.message_table.{name}", value)


class RandomWork(RuleBasedStateMachine):
    """A queue, its model, and the log of both."""

    @initialize(settings=ways_to_be, data=st.data(), is_put_away=st.booleans())
    def begin(self, settings: QueueSettings, data: st.DataObject, is_put_away: bool) -> None:
        if settings.at_most_once:
            settings = replace(settings, lease_period=None, max_deliveries=0, max_cancels=0)
        self.settings = settings
        self.bench = Bench()
        self.room = Drawer() if is_put_away else None
        self.bench.queue = Queue(settings, CountingMatching, "here", storage=self.room)
        self.model = Model(settings)
        self.log: list[tuple[MessageDetails, range, int] | bytes] = []
        self.sent: set[int] = set()
        self.join_or_replace("ann", 3, None)
        self.join_or_replace("bob", 2, "even")
        self.publish(data, 5)
        self.deliver()

    @property
    def queue(self) -> Queue:
        return self.bench.queue

    def record(self) -> list[QueueEvent]:
        events = self.queue.drain_events()
        self.log += map(encode, events)
        return events

    @rule(data=st.data(), count=st.integers(1, 12))
    def publish(self, data: st.DataObject, count: int) -> None:
        settings, now = self.settings, self.bench.now
        txids = range(self.bench.published + 1, self.bench.published + count + 1)
        self.bench.published += count
        messages: list[Message] = []
        lifetimes = [data.draw(st.sampled_from([None, None, None, 4 * SECOND])) for _ in txids]
        for txid, lifetime in zip(txids, lifetimes, strict=True):
            priority = data.draw(st.integers(0, 3)) if settings.prioritized else 0
            is_barrier = not settings.prioritized and data.draw(st.integers(0, 9)) == 0
            is_ours = data.draw(st.integers(0, 9)) > 0 or is_barrier
            key = 0 if is_barrier else txid % 3
            expires = settings.expiration_time(now, lifetime) or NEVER
            messages.append(Message(txid, now, expires, priority, key, is_barrier, is_ours))
        details = MessageDetails(
            barriers=[one.is_barrier for one in messages],
            lifetimes=lifetimes,
            priorities=[one.priority for one in messages] if settings.prioritized else None,
            keys=[one.txid % 3 for one in messages] if settings.keyed else None,
            owners=["" if one.is_ours else "there" for one in messages],
        )
        self.enqueue(details, txids, now)
        self.log.append((details, txids, now))
        self.record()  # of those that were acknowledged before they came
        for one in messages:
            self.model.publish(one)

    def enqueue(self, details: MessageDetails, txids: range, now: int) -> None:
        self.queue.lifecycle.enqueue(txids, [now] * len(txids), PUBLISHER, txids, details)

    @rule(name=st.sampled_from(NAMES), backlog=st.integers(0, 5), content_filter=FILTERS)
    def join_or_replace(self, name: str, backlog: int, content_filter: str | None) -> None:
        if name not in self.model.workers:
            self.bench.consumer(name, backlog, content_filter)
            self.model.join(name, backlog, content_filter)
            return
        consumer = self.bench.consumers[name]
        consumer.set_requested_backlog(backlog)
        self.queue.attach(consumer, content_filter)
        worker = self.model.workers[name]
        worker.backlog = min(backlog, self.settings.max_per_subscription_backlog)
        worker.content_filter = content_filter

    @precondition(lambda self: self.model.workers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.workers)))
        self.queue.detach(self.bench.consumers.pop(name), self.bench.now)
        self.model.leave(name, self.bench.now)
        self.record()

    @rule()
    def deliver(self) -> None:
        got = self.bench.deliver()
        self.record()
        assert got == self.model.deliver(self.bench.now)
        for txid in (txid for txids in got.values() for txid in txids):
            assert not (self.settings.at_most_once and txid in self.sent), "sent a second time"
        if self.settings.at_most_once:
            self.sent |= {txid for txid, how in self.model.gone.items() if how == "sent"}

    @rule(steps=st.sets(st.integers(1, 12), min_size=1))
    def acknowledge_early(self, steps: set[int]) -> None:
        early = [self.bench.published + step for step in sorted(steps)]
        self.queue.acknowledge(marks(*early), self.bench.now, "ann")
        self.record()
        self.model.deferred |= dict.fromkeys(early, self.bench.now)

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), way=st.sampled_from(AckOutcome), delay=DELAYS)
    def acknowledge(self, data: st.DataObject, way: AckOutcome, delay: int) -> None:
        known = sorted(self.model.messages)
        held = sorted(txid for worker in self.model.workers.values() for txid in worker.has)
        txid = data.draw(st.sampled_from([*known, *held, *held]))
        now = self.bench.now
        self.queue.acknowledge(marks(txid), now, "ann", way, delay)
        self.record()
        if way is AckOutcome.DONE or self.settings.at_most_once:
            self.model.acknowledge(txid, now)
        elif way is AckOutcome.CANCEL:
            self.model.cancel(txid, now, delay)
        elif not self.model.messages[txid].is_barrier:
            self.model.finish(txid, "expired")

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), owner=st.sampled_from(["here", "there"]))
    def transfer(self, data: st.DataObject, owner: str) -> None:
        txid = data.draw(st.sampled_from(sorted(self.model.messages)))
        moved = self.queue.transfer(marks(txid), owner, self.bench.now)
        self.record()
        if self.model.messages[txid].is_barrier:
            return
        if moved:
            self.model.messages[txid].is_ours = owner == "here"
        self.model.pass_time(self.bench.now)

    @rule(seconds=st.integers(1, 8))
    def wait(self, seconds: int) -> None:
        self.bench.later(seconds * SECOND)
        self.deliver()

    @rule()
    def restart(self) -> None:
        self.bench.queue = Queue(self.settings, CountingMatching, "here", storage=self.room)
        self.bench.consumers.clear()
        for entry in self.log:
            if isinstance(entry, bytes):
                self.queue.replay(decode(entry))
            else:
                self.enqueue(*entry)
        assert not self.queue.drain_events(), "what is replayed is not recorded again"
        self.queue.finish_recovery(self.bench.now)
        self.record()
        self.model.restart(self.bench.now)

    @invariant()
    def the_same_is_there(self) -> None:
        if not hasattr(self, "model"):
            return
        queue, entries = self.queue, self.queue.lifecycle.entries
        assert [entries.txid(offset) for offset in all_offsets(queue)] == sorted(
            self.model.messages
        )
        assert queue.depth == len(self.model.messages)
        for offset in all_offsets(queue):
            status = message(queue, offset)
            assert status is not None
            known = self.model.messages[status.txid]
            assert status.leased_to == (known.holder.name if known.holder else "")
            assert (status.deliveries, status.cancels) == (known.deliveries, known.cancels)
        for name, consumer in self.bench.consumers.items():
            assert consumer.outstanding == len(self.model.workers[name].has)
        assert set(available(queue).tolist()) <= set(self.model.messages)


RandomWork.TestCase.settings = run_with(
    max_examples=examples(150, 16), stateful_step_count=40, deadline=None
)
TestRandomWork = RandomWork.TestCase
