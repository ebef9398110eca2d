"""Two instances compare their records: what they say differs does, and what differs is said.

Every schedule follows from its seed. Planted defects show that the checks see what they are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from server.replication.anti_entropy.comparison import (
    RESPONSE_TIMEOUT_US,
    ComparisonResult,
    RecordComparison,
    prevails,
)
from server.replication.anti_entropy.digests import RecordPortion, RecordState, digest_of
from server.replication.anti_entropy.messages import (
    ComparisonMessageError,
    DigestRefusal,
    DigestRequest,
    DigestResponse,
    KeyListResponse,
    RepublishRequest,
    StateRequest,
    StateResponse,
    pack,
    unpack,
)
from server.replication.anti_entropy.responder import ComparisonResponder
from server.storage.journal.publisher_table import publisher_part
from server.storage.journal.runs import RUN_BITS
from tests.replication.comparing import TOPIC, World, until


def play(seed: int, make: type[World] = World) -> None:
    """Let much happen at the same time, then nothing: compare, repair, and compare again."""
    names = "ABC" if seed % 3 == 0 else "AB"
    world = make(seed, names, passes_through=seed % 2 == 0)
    random = world.random
    ways = list(world.ways)
    for step in range(120):
        for _ in range(random.randrange(3)):
            world.publish(random.choice(names))
        for way in ways:
            for _ in range(random.randrange(3)):
                world.deliver(*way)
        if step % 9 == 0:
            world.blocked = {way for way in ways if random.random() < 0.3}
        if step % 10 == 0 and world.sites["A"].comparison is None:
            world.compare("A", "B")
        world.work()
    world.drain()
    until(world, lambda: world.sites["A"].comparison is None)
    world.words.clear()
    for _ in range(2):
        settle(world)
    assert not any(world.differing(one, other) for one, other in ways)


def settle(world: World) -> None:
    """Compare all pairs, see that nothing is overlooked, and repair what differs."""
    for one, other in world.ways:
        if one > other:
            continue
        comparison = world.compare(one, other)
        until(world, lambda: comparison.is_over)  # noqa: B023 - called at once
        result = comparison.result
        assert result is not None, comparison.failure
        assert {each.key for each in result.differences} == world.differing(one, other)
        assert not result.unclear
        assert result.differing == len(world.differing(one, other))
        assert result.records == tuple(len(world.sites[name].records) for name in (one, other))
        world.repair(one, other, result)
        until(world, lambda: not world.words)
        world.drain()


def test_what_is_said_to_differ_does_and_can_be_repaired(seeds: range) -> None:
    for seed in seeds:
        try:
            play(seed)
        except AssertionError as problem:
            problem.add_note(f"seed {seed}")
            raise


REPAIR = 3 << RUN_BITS
STATES = some.builds(
    RecordState,
    some.sampled_from((0, 5, 6)),
    some.sampled_from((1, 2, REPAIR)),
    some.integers(1, 3),
)


@given(some.lists(STATES, min_size=3, max_size=3, unique=True))
def test_repairs_go_by_one_order_of_all_messages(states: list[RecordState]) -> None:
    repairs = frozenset((publisher_part(REPAIR),))
    for one, other, third in permutations(states):
        assert not (prevails(one, other, repairs) and prevails(other, one, repairs))
        if prevails(one, other, repairs) and prevails(other, third, repairs):
            assert prevails(one, third, repairs)


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        (RecordState(5, 1, 1), RecordState()),
        (RecordState(5, 1, 2), RecordState(6, 1, 1)),
        (RecordState(5, 2, 1), RecordState(6, 1, 9)),
        (RecordState(5, 1, 1), RecordState(6, REPAIR, 9)),
        (RecordState(6, 1, 1), RecordState(5, 1, 1)),
    ],
)
def test_which_message_a_repair_publishes_once_more(
    winner: RecordState, loser: RecordState
) -> None:
    repairs = frozenset((publisher_part(REPAIR),))
    assert prevails(winner, loser, repairs)
    assert not prevails(loser, winner, repairs)


class Table:
    """Records that stay as they are."""

    last_txid = 9

    def __init__(self, **states: RecordState) -> None:
        self.states = states

    def read_portion(self, place: int) -> RecordPortion:
        there = {key: state for key, state in self.states.items() if state.digest}
        return RecordPortion(list(there), [b"%d" % state.digest for state in there.values()], None)

    def record_state(self, identity: str) -> RecordState:
        found = self.states.get(identity, RecordState())
        if not found.digest:
            return found
        return RecordState(
            digest_of(identity, b"%d" % found.digest), found.client, found.sequence, found.ages
        )

    def has_received(self, peer: str, txid: int) -> bool:
        return True

    def has_message(self, client: int, sequence: int) -> bool:
        return sequence < 100

    def find(self, message_type: str, topic: str) -> Table:
        return self


@pytest.mark.parametrize(
    ("ours", "theirs", "differs", "unclear"),
    [
        (RecordState(1, 7, 1), RecordState(1, 7, 1), 0, 0),
        (RecordState(1, 7, 1), RecordState(1, 8, 5), 0, 0),  # other messages, the same body
        (RecordState(1, 7, 1), RecordState(2, 8, 5), 1, 0),
        (RecordState(1, 7, 1), RecordState(), 1, 0),
        (
            RecordState(1, 7, 1, True),
            RecordState(),
            0,
            0,
        ),  # an end: each instance removes it by its own clock
        (RecordState(), RecordState(1, 7, 1, True), 0, 0),
        (RecordState(1, 7, 1, True), RecordState(2, 8, 5, True), 1, 0),
        (RecordState(1, 7, 100), RecordState(2, 8, 5), 0, 1),  # the other one has not got it yet
        (RecordState(1, 7, 1), RecordState(2, 8, 100), 0, 1),
        (RecordState(1), RecordState(2), 1, 0),  # of messages whose names are not known
    ],
)
def test_what_counts_as_a_difference(
    ours: RecordState, theirs: RecordState, differs: int, unclear: int
) -> None:
    here, there = Table(a=ours, b=RecordState(9, 1, 1)), Table(a=theirs, b=RecordState(9, 1, 1))
    answering = ComparisonResponder("A", there.find, there)
    comparison = RecordComparison(1, TOPIC, "B", here, here, 0)
    now = 0
    while not comparison.is_over:
        now += 1_000_000
        comparison.run_slice(now)
        for word in comparison.outgoing_messages:
            answering.receive_request(word)  # type: ignore[arg-type]  # what asks is among them, and no other
        comparison.outgoing_messages.clear()
        while answering.run_slice() or answering.is_awaiting_entries:
            pass
        for word in answering.outgoing_messages:
            comparison.receive_message(word)
        answering.outgoing_messages.clear()
    assert comparison.result is not None
    assert (comparison.result.differing, comparison.result.unclear) == (differs, unclear)


def test_who_gets_no_answer_gives_up() -> None:
    here = Table(a=RecordState(1, 7, 1))
    comparison = RecordComparison(1, TOPIC, "B", here, here, 0)
    now = 0
    while not comparison.is_over:
        now += RESPONSE_TIMEOUT_US // 2
        comparison.run_slice(now)
        comparison.receive_message(DigestResponse(2, 1, b""))  # about something else
    assert comparison.failure == "B has not answered, or not caught up, in time"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (DigestResponse(1, 1, b"12345678"), "B has sent a survey of 8 bytes"),
        (KeyListResponse(1, [], [], is_last=True), "B has sent an unexpected response"),
        (DigestRefusal(1, "no such topic"), "B: no such topic"),
    ],
)
def test_an_answer_that_is_none_ends_the_comparison(answer: Any, failure: str) -> None:
    here = Table(a=RecordState(1, 7, 1))
    comparison = RecordComparison(1, TOPIC, "B", here, here, 0)
    while not comparison.is_over:
        comparison.run_slice(0)
        comparison.receive_message(answer)
    assert comparison.failure == failure


def test_words_are_packed_and_read() -> None:
    states = [RecordState(1, 2, 3), RecordState()]
    for word in (
        DigestRequest(1, "json", "orders"),
        KeyListResponse(1, ["a"], [2], is_last=True),
        StateRequest(1, 2, 3, ["a", "b"], states),
        StateResponse(1, 2, 3, states, [True, False]),
        RepublishRequest("json", "orders", ["a"], [1]),
    ):
        assert unpack(pack(word)) == word


@given(some.binary(max_size=60))
def test_what_is_no_word_is_refused(data: bytes) -> None:
    with suppress(ComparisonMessageError):
        unpack(data)


def test_a_word_with_more_keys_than_states_is_refused() -> None:
    with pytest.raises(ComparisonMessageError, match="2 and 1"):
        unpack(pack(RepublishRequest("json", "orders", ["a", "b"], [1])))


class JudgesAtOnce(RecordComparison):
    """Does not wait for what is on its way."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._context: Any = Hasty(self._context)


class Hasty:
    """Says that everything has been taken in, and everything has come."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def has_received(self, peer: str, txid: int) -> bool:
        return True

    def has_message(self, client: int, sequence: int) -> bool:
        return True


class AnswersAtOnce(ComparisonResponder):
    """Does not wait for what is on its way, and says that everything has come."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._context: Any = Hasty(self._context)


class ForgetsOwn(RecordComparison):
    """Does not look at every key that may differ."""

    def _find_differing_keys(self, ranges: Sequence[int], keys: dict[str, None]) -> Any:
        yield from super()._find_differing_keys(ranges, keys)
        for key in [key for key in keys if int(key) % 2]:
            del keys[key]


class SurveysLess(RecordComparison):
    """Takes ranges of keys for the same that are not."""

    def _range_batches(self, ranges: Sequence[int]) -> Iterator[Sequence[int]]:
        return super()._range_batches(ranges[1:])


class RepairsTwice(World):
    """Both instances publish again what they have, as if there were no rule."""

    def repair(self, name: str, peer: str, result: ComparisonResult) -> None:
        for key, ours, theirs in result.differences:
            self.publish_again(name, key, ours.digest)
            self.publish_again(peer, key, theirs.digest)


MUTANTS: dict[str, dict[str, Any]] = {
    "judges at once": {"comparison_type": JudgesAtOnce, "answering_type": AnswersAtOnce},
    "forgets keys": {"comparison_type": ForgetsOwn},
    "surveys less": {"comparison_type": SurveysLess},
    "repairs twice": {"repair": RepairsTwice.repair},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_defect_is_found(mutant: str) -> None:
    kind = type(mutant, (World,), MUTANTS[mutant])
    for seed in range(200):
        try:
            play(seed, kind)
        except AssertionError:
            return
    pytest.fail(f"an instance that {mutant} passes for one that does not")
