"""Who asks for which messages, and who hands them on. What becomes of that between instances that
fail is in tests/replication/test_queues.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from server.queues.core import (
    MAX_REQUESTED_MESSAGES,
    Cancelled,
    OutboundPeerMessage,
    OwnershipTransfers,
    PublisherSequence,
    Released,
    Transferred,
    TransferRequest,
    TransferResponse,
    decode_peer_message,
    encode_peer_message,
)
from server.queues.core.ownership import OwnershipClaim
from tests.queues.support import PUBLISHER, SECOND, Bench, marks

LONG = 10 * SECOND


class Part:
    """The queue of the instance `here`, and what it says."""

    def __init__(self, is_there: bool | None = True, **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.is_there = is_there
        self.sharing = OwnershipTransfers(self.bench.queue, self.reach)

    def reach(self, name: str) -> bool | None:
        return self.is_there if name == "there" else True

    def publish(self, owner: str, count: int = 1, **details: Any) -> None:
        self.bench.publish(count, owners=[owner] * count, **details)

    def step(self) -> list[OutboundPeerMessage]:
        """Deliver, and say something."""
        self.bench.deliveries()
        return self.sharing.process_transfers(self.bench.now)

    def asked(self) -> dict[str, list[int]]:
        """The messages that are asked for, by owner."""
        return {to: [mark[1] for mark in word.bookmarks] for to, word in self.step()}

    def hears_ask(
        self, *txids: int, most: int = 100
    ) -> tuple[list[PublisherSequence], TransferResponse]:
        """What is handed on to somebody who asks, and the answer."""
        self.bench.queue.drain_events()
        self.sharing.handle_peer_message(
            TransferRequest(7, marks(*txids), most), "asker", self.bench.now
        )
        ((to, answer),) = self.step()
        assert to == "asker"
        assert isinstance(answer, TransferResponse)
        events = self.bench.queue.drain_events()
        transfers = [event for event in events if isinstance(event, Transferred)]
        assert all(event.owner == "asker" for event in transfers)
        return [mark for event in transfers for mark in event.bookmarks], answer


def test_nothing_is_asked_for_without_anybody_to_have_it() -> None:
    part = Part()
    part.publish("there", 3)
    part.bench.later(LONG)
    assert part.step() == []
    part.bench.consumer("full", 0)
    assert part.step() == []


def test_messages_are_asked_for_when_they_have_waited() -> None:
    part = Part()
    part.bench.consumer("a", 2)
    part.publish("there", 2)
    part.publish("elsewhere", 1)
    assert part.step() == []
    part.bench.later(SECOND)
    assert part.asked() == {"there": [1, 2], "elsewhere": [3]}
    assert part.step() == [], "it is waited for"
    part.bench.later(SECOND)
    assert part.asked() == {"there": [1, 2], "elsewhere": [3]}, "nobody has answered"


def test_a_consumer_of_some_messages_has_those_asked_for() -> None:
    part = Part()
    part.bench.consumer("a", 10, "even")
    part.publish("there", 5)
    part.bench.later(SECOND)
    assert part.asked() == {"there": [2, 4]}


def test_the_highest_priority_is_asked_for_first() -> None:
    part = Part(prioritized=True)
    part.bench.consumer("a", 10)
    part.publish("there", 3, priorities=[1, 5, 3])
    part.bench.later(SECOND)
    assert part.asked() == {"there": [2, 3, 1]}


def test_nothing_behind_a_barrier_is_asked_for() -> None:
    part = Part()
    part.bench.consumer("a", 10)
    part.publish("there", 3, barriers=[False, True, False])
    part.bench.later(SECOND)
    assert part.asked() == {"there": [1]}


def test_a_large_queue_is_asked_for_in_portions() -> None:
    part = Part(max_per_subscription_backlog=10_000)
    part.bench.consumer("a", 10_000)
    part.publish("there", 3_000)
    part.bench.later(SECOND)
    ((_, word),) = part.step()
    assert len(word.bookmarks) == MAX_REQUESTED_MESSAGES
    assert isinstance(word, TransferRequest)
    assert word.max_transferred == MAX_REQUESTED_MESSAGES


def test_what_nobody_has_room_for_is_handed_on() -> None:
    part = Part()
    part.bench.consumer("a", 2)
    part.publish("", 5)
    part.step()
    granted, answer = part.hears_ask(1, 2, 3, 4, 5, 9, most=2)
    assert granted == marks(3, 4)
    assert answer.granted_count == 2
    assert list(zip(answer.bookmarks, answer.owners, strict=True)) == [
        (mark, "here") for mark in marks(1, 2, 5)
    ]
    assert part.hears_ask(3)[1].owners == ["asker"], "it is told what it missed"


def test_a_question_is_answered_when_consumers_have_been_served() -> None:
    part = Part()
    part.publish("", 2)
    part.bench.consumer("a", 2)
    granted, answer = part.hears_ask(1, 2)
    assert granted == []
    assert answer.owners == ["here", "here"]


def test_what_another_one_owns_is_asked_for_there() -> None:
    part = Part()
    part.bench.consumer("a", 10)
    part.publish("there")
    part.bench.later(SECOND)
    ((_, word),) = part.step()
    answer = TransferResponse(word.number, 0, marks(1), [3], ["elsewhere"])
    part.sharing.handle_peer_message(answer, "there", part.bench.now)
    assert part.asked() == {"elsewhere": [1]}
    part.sharing.handle_peer_message(
        TransferResponse(99, 0, marks(1), [2], ["there"]), "there", part.bench.now
    )
    (offset,) = part.bench.queue.lifecycle.entries.offsets()
    assert part.bench.queue.lifecycle.ownership_claim(offset) == OwnershipClaim(3, "elsewhere"), (
        "that is older"
    )


@pytest.mark.parametrize("answer_comes_first", [True, False])
def test_what_was_named_beyond_what_was_wanted_is_asked_for_as_soon_as_there_is_room(
    answer_comes_first: bool,
) -> None:
    part = Part()
    part.bench.consumer("a", 1)
    part.publish("there", 3)
    part.bench.later(LONG)
    ((_, word),) = part.step()
    assert isinstance(word, TransferRequest)
    assert (word.bookmarks, word.max_transferred) == (marks(1, 2, 3), 1)
    answer = TransferResponse(word.number, 1, marks(2, 3), [0, 0], ["there", "there"])
    handed_on = Transferred(1, marks(1), "here", [1])
    if answer_comes_first:
        part.sharing.handle_peer_message(answer, "there", part.bench.now)
    part.bench.queue.apply_remote_event(handed_on, part.bench.now)
    assert part.step() == [], "the consumer is busy"
    if not answer_comes_first:
        part.sharing.handle_peer_message(answer, "there", part.bench.now)
    assert part.bench.queue.acknowledge(marks(1), part.bench.now).affected_count == 1
    assert part.asked() == {"there": [2, 3]}


def test_what_an_owner_refuses_is_not_asked_for_at_once() -> None:
    part = Part()
    part.bench.consumer("a", 1)
    part.publish("there", 2)
    part.bench.later(LONG)
    ((_, word),) = part.step()
    answer = TransferResponse(word.number, 0, marks(1, 2), [0, 0], ["there", "there"])
    part.sharing.handle_peer_message(answer, "there", part.bench.now)
    assert part.step() == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_titles_all_believe_the_same(order: tuple[int, int]) -> None:
    part = Part()
    part.publish("there")
    events = [Transferred(1, marks(1), owner, [1]) for owner in ("one", "two")]
    for index in order:
        part.bench.queue.apply_remote_event(events[index], part.bench.now)
    (offset,) = part.bench.queue.lifecycle.entries.offsets()
    assert part.bench.queue.lifecycle.ownership_claim(offset) == OwnershipClaim(1, "two")


@pytest.mark.parametrize(
    ("proxied", "reach", "takes"),
    [(False, False, False), (True, None, False), (True, True, False), (True, False, True)],
)
def test_one_that_is_gone_is_acted_for_if_that_is_wanted(
    proxied: bool, reach: bool | None, takes: bool
) -> None:
    part = Part(reach)
    part.sharing.is_proxy = proxied
    part.publish("there", 2)
    part.bench.later(SECOND)
    granted, _ = part.hears_ask(1)
    assert granted == (marks(1) if takes else [])
    part.bench.consumer("a", 10)
    said = part.step()
    assert part.bench.deliver() == ({"a": [2]} if takes else {})
    is_asked = "there" in [to for to, _ in said]
    assert is_asked == (reach is not False), "whoever is gone is asked nothing"


def test_a_barrier_that_others_have_passed_waits_for_nobody_here() -> None:
    part = Part()
    part.publish("there", 2, barriers=[True, False])
    part.bench.queue.apply_remote_event(Released(1, marks(1)), part.bench.now)
    part.bench.consumer("a", 10)
    assert part.bench.deliver() == {"a": [1]}

    other = Part()
    other.publish("there", 2, barriers=[True, False])
    assert other.bench.deliver() == {}
    assert other.bench.queue.depth == 2, "nobody has had it"
    other.bench.queue.apply_remote_event(Released(1, marks(1)), other.bench.now)
    other.bench.deliver()
    assert other.bench.queue.depth == 1


def test_a_delay_is_counted_from_when_it_is_heard_of() -> None:
    part = Part()
    part.bench.consumer("a", 10)
    part.publish("there")
    part.bench.later(SECOND)
    cancelled = Cancelled(99 * SECOND, marks(1), [2], [102 * SECOND])
    part.bench.queue.apply_remote_event(cancelled, part.bench.now)
    assert part.asked() == {}
    part.bench.later(3 * SECOND)
    assert part.asked() == {"there": [1]}


def test_words_are_read_back() -> None:
    for word in (
        TransferRequest(1, marks(1, 2), 2),
        TransferResponse(1, 1, marks(2), [0], ["here"]),
        TransferResponse(2, 0),
    ):
        assert decode_peer_message(encode_peer_message(word)) == word
    titles_missing = encode_peer_message(TransferResponse(1, 1, marks(2)))
    too_many = encode_peer_message(
        TransferRequest(1, [(PUBLISHER, 1)] * (MAX_REQUESTED_MESSAGES + 1), 1)
    )
    no_text = encode_peer_message(TransferResponse(1, 1, marks(2), [0], ["here"])).replace(
        b"here", b"\xff" * 4
    )
    cut_off = encode_peer_message(TransferRequest(1, [], 1))[:-1]
    for data in (b"", b"\xc1", cut_off, titles_missing, too_many, no_text):
        with pytest.raises(msgspec.MsgspecError):
            decode_peer_message(data)
