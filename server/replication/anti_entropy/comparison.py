"""Anti-entropy: checks, on request, whether two instances have the same records of a topic.

Instances accept publishes independently. Messages for one key that are published at two instances
at the same time arrive in one order at the first and in another at the second; each instance shows
the one that arrived last, and that stays so until the key is published to again. Nothing is lost,
for both have both messages; but their records differ. This module finds such a *difference*.

Both instances compute digests of ranges of their records (digests.py). Where these sums differ, so
do records, or they did while the sums were computed: these keys are listed, and then verified, some
hundred at a time, by `StateRequest`. The other instance responds to a `StateRequest` when it has
received everything that this one had when it sent the request; this one evaluates the response when
it has received everything that the other one had when it responded. If then

    - the states of a key are not the same,
    - the state here is still the one in the `StateRequest`,
    - each has received the message that the other one shows,

both know all messages on which the other one's state depends, and still do not agree. No clock is
involved. The last point excludes messages in flight from third instances, for the shown records;
for deleted ones, the key is verified twice, with some time between. Keys that change all the time
are verified a few times and then skipped: they are *unclear*, and counted. A record that expires
and is missing at one instance is no difference: each instance removes it at its own time.

"In step" therefore means: of all keys that were not published to at the time, the records were the
same.

A repair republishes the record that one of the two shows: the message takes the path of any
publish, and is then the last one for both. Both states alone decide which one that is (`prevails`):
an existing record before none; a publisher's message before one that an earlier repair has
published; of one publisher the higher number; else the higher identity. That is a total order of
messages, so the result does not depend on which instance decides, nor on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from server.replication.anti_entropy.digests import (
    RANGES,
    ComparableRecords,
    RangeDigests,
    RecordState,
    make_range_digests,
    portions,
    within,
)
from server.replication.anti_entropy.messages import (
    MAX_COMPARISON_MESSAGE_SIZE,
    ComparisonMessage,
    DigestRefusal,
    DigestRequest,
    DigestResponse,
    KeyListContinuation,
    KeyListRequest,
    KeyListResponse,
    StateRequest,
    StateResponse,
)
from server.storage.journal.publisher_table import publisher_part

MAX_DIFFERENCES: Final = 10_000
"""Differences of a topic that are listed; more are only counted."""
MAX_COMPARED_KEYS: Final = 131_072
"""Keys that are verified; with more, the result does not report the topic as equal."""
MAX_LISTED_KEYS: Final = 262_144
"""Records in a list."""
RESPONSE_TIMEOUT_US: Final = 60_000_000
"""Timeout in microseconds for a response, and for entries in flight."""
STATE_REQUEST_INTERVAL_US: Final = 2_000_000
"""Microseconds between two verifications of a key."""

_MAX_VERIFICATIONS: Final = 5
_MAX_KEYS_PER_REQUEST: Final = 256
_KEY_BYTES: Final = 32  # of a state in a message, beside the key


class ComparisonContext(Protocol):
    """The state of its own instance that a comparison uses."""

    @property
    def last_txid(self) -> int:
        """The txid of the last entry in its log."""

    def has_received(self, peer: str, txid: int) -> bool:
        """Return whether everything up to an entry of the peer's log has been received.

        True for an instance that sends nothing here: there is nothing to receive.
        """

    def has_message(self, client: int, sequence: int) -> bool:
        """Return whether a message has been received."""


class RecordDifference(NamedTuple):
    """A key with different records at two instances.

    Attributes:
        key: the key.
        ours: its state at the instance that has requested the comparison.
        theirs: its state at the other one.
    """

    key: str
    ours: RecordState
    theirs: RecordState


class ComparisonResult(NamedTuple):
    """The result of a comparison.

    Attributes:
        records: number of records here, and there.
        differences: the differences found, up to a limit.
        differing: number of all differences.
        unclear: number of undecided keys: they change, messages for them are in flight, or there
            are too many.
        txids: the last txids of the logs, here and there; 0 if no `StateRequest` was necessary.
    """

    records: tuple[int, int]
    differences: Sequence[RecordDifference]
    differing: int
    unclear: int
    txids: tuple[int, int]


class ComparisonError(Exception):
    """The comparison has no result; the text gives the reason."""


class _KeyVerdict(Enum):
    SAME = "same"
    DIFFERS = "differs"
    UNCLEAR = "unclear"


_Wait: TypeAlias = Callable[[], bool]
_Steps: TypeAlias = Generator[_Wait | None, None, None]
_Response = TypeVar("_Response", bound=ComparisonMessage)


class RecordComparison:
    """Compares a topic's records with those of another instance.

    The caller passes messages for it to `receive_message`, and calls `run_slice` until that returns
    False, and again when a message has arrived, or some time has passed. It sends the messages in
    `outgoing_messages`.

    Args:
        number: identifies this comparison.
        topic: message type and name.
        peer: the other instance.
        records: those of this instance.
        context: the other state of this instance.
        now_us: microseconds that never go back.

    Attributes:
        outgoing_messages: messages to be sent.
        result: the result; None until there is one.
        failure: the reason why there will be no result; None as long as there may be one.
    """

    def __init__(
        self,
        number: int,
        topic: tuple[str, str],
        peer: str,
        records: ComparableRecords,
        context: ComparisonContext,
        now_us: int,
    ) -> None:
        self.topic: Final = topic
        self.peer: Final = peer
        self.outgoing_messages: list[ComparisonMessage] = []
        self.result: ComparisonResult | None = None
        self.failure: str | None = None
        self._number = number
        self._records = records
        self._context = context
        self._now_us = now_us
        self._responses: list[ComparisonMessage] = []
        self._wait_condition: _Wait | None = None
        self._wait_started_us = now_us
        self._steps: Iterator[_Wait | None] = self._compare()
        self._peer_record_count = 0  # number of records
        self._own_digests = RangeDigests()
        self._txids = 0, 0
        self._state_request_number = 0

    @property
    def is_over(self) -> bool:
        """True if there is nothing more to do."""
        return self.result is not None or self.failure is not None

    def receive_message(self, message: ComparisonMessage) -> None:
        """Receive a message of the other instance; ignore those of another comparison."""
        if not self.is_over and getattr(message, "number", None) == self._number:
            self._responses.append(message)

    def fail(self, reason: str) -> None:
        """Abort the comparison."""
        if not self.is_over:
            self.failure = reason

    def run_slice(self, now: int) -> bool:
        """Do a time slice of work; return whether there is more to do at once."""
        self._now_us = now
        if self.is_over:
            return False
        wait_condition = self._wait_condition
        if wait_condition is not None:
            if not wait_condition():
                if now - self._wait_started_us > RESPONSE_TIMEOUT_US:
                    self.fail(f"{self.peer} has not answered, or not caught up, in time")
                return False
            self._wait_condition = None
        try:
            self._wait_condition = next(self._steps)
            self._wait_started_us = now
        except StopIteration:
            return False
        except ComparisonError as problem:
            self.fail(str(problem))
        return not self.is_over

    # steps, in order

    def _compare(self) -> _Steps:
        self._send_message(DigestRequest(self._number, *self.topic))
        for digests in make_range_digests(self._records):
            if digests is None:
                yield None
            else:
                self._own_digests = digests
        yield self._has_response
        response = self._pop_response(DigestResponse)
        self._peer_record_count = response.records
        try:
            differing = self._own_digests.differing_ranges(response.sums)
        except ValueError as problem:
            raise ComparisonError(f"{self.peer} has sent {problem}") from problem
        keys: dict[str, None] = {}
        for ranges in self._range_batches(differing):
            yield from self._find_differing_keys(ranges, keys)
            if len(keys) > MAX_COMPARED_KEYS:
                break
        unclear = max(len(keys) - MAX_COMPARED_KEYS, 0)
        yield from self._verify_keys(list(keys)[:MAX_COMPARED_KEYS], unclear)

    def _range_batches(self, ranges: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield ranges, no more at a time than a list may have records."""
        per_range = max(self._own_digests.record_count, self._peer_record_count) // RANGES + 1
        size = max(MAX_LISTED_KEYS // 2 // per_range, 1)
        for start in range(0, len(ranges), size):
            yield ranges[start : start + size]

    def _find_differing_keys(self, ranges: Sequence[int], keys: dict[str, None]) -> _Steps:
        """Find the keys in some ranges that are not the same."""
        listed: set[str] = set()
        range_set = frozenset(ranges)
        message: ComparisonMessage = KeyListRequest(self._number, list(ranges))
        while True:
            self._send_message(message)
            yield self._has_response
            response = self._pop_response(KeyListResponse)
            if len(listed) > MAX_LISTED_KEYS:
                raise ComparisonError(f"{self.peer} lists more than {MAX_LISTED_KEYS} records")
            for key, digest in zip(response.keys, response.digests, strict=True):
                listed.add(key)
                if self._records.record_state(key).digest != digest:
                    keys[key] = None
            if response.is_last:
                break
            message = KeyListContinuation(self._number)
        for portion in portions(self._records):
            for key, _ in within(portion, range_set):
                if key not in listed:
                    keys[key] = None
            yield None

    def _verify_keys(self, keys: Sequence[str], unclear: int) -> _Steps:
        """Verify keys until each is decided, or they keep changing."""
        suspected: dict[str, RecordDifference] = {}
        differences_by_key: dict[str, RecordDifference] = {}
        for _ in range(_MAX_VERIFICATIONS):
            undecided: list[str] = []
            for batch in _key_batches(keys):
                states: dict[str, RecordState] = {
                    key: self._records.record_state(key) for key in batch
                }
                yield from self._request_states(states)
                for key, difference in self._compare_states(states):
                    if difference is None:
                        undecided.append(key)
                    elif suspected.get(key) == difference:
                        differences_by_key[key] = difference
                    else:
                        suspected[key] = difference
                        undecided.append(key)
            if not undecided:
                keys = undecided
                break
            keys = undecided
            yield self._is_retry_due
        differences = sorted(differences_by_key.values())[:MAX_DIFFERENCES]
        self.result = ComparisonResult(
            (self._own_digests.record_count, self._peer_record_count),
            differences,
            len(differences_by_key),
            unclear + len(keys),
            self._txids,
        )

    def _request_states(self, states: dict[str, RecordState]) -> _Steps:
        """Request the states of keys; wait until the entries behind the response are here."""
        self._state_request_number += 1
        last_txid = self._context.last_txid
        self._send_message(
            StateRequest(
                self._number,
                self._state_request_number,
                last_txid,
                list(states),
                list(states.values()),
            )
        )
        yield self._has_response
        self._state_response = self._pop_response(StateResponse)
        if self._state_response.request_number != self._state_request_number or len(
            self._state_response.states
        ) != len(states):
            raise ComparisonError(f"{self.peer} has sent an unexpected response")
        self._txids = last_txid, self._state_response.upto
        yield lambda: self._context.has_received(self.peer, self._state_response.upto)

    def _compare_states(
        self, states: dict[str, RecordState]
    ) -> Iterator[tuple[str, RecordDifference | None]]:
        """Yield the keys that differ, or that are undecided."""
        state_response = self._state_response
        for (key, requested_state), peer, has_message in zip(
            states.items(), state_response.states, state_response.received, strict=True
        ):
            own = self._records.record_state(key)
            verdict = self._verdict(requested_state, own, peer, has_message=has_message)
            if verdict is _KeyVerdict.DIFFERS:
                yield key, RecordDifference(key, own, peer)
            elif verdict is _KeyVerdict.UNCLEAR:
                yield key, None

    def _verdict(
        self,
        requested_state: RecordState,
        own: RecordState,
        peer: RecordState,
        *,
        has_message: bool,
    ) -> _KeyVerdict:
        if own.digest == peer.digest:
            return _KeyVerdict.SAME
        if own != requested_state:
            return _KeyVerdict.UNCLEAR
        if not has_message or not is_source_message_received(peer, self._context):
            return _KeyVerdict.UNCLEAR
        if (not own.digest and peer.ages) or (not peer.digest and own.ages):
            return _KeyVerdict.SAME
        return _KeyVerdict.DIFFERS

    def _is_retry_due(self) -> bool:
        return self._now_us - self._wait_started_us >= STATE_REQUEST_INTERVAL_US

    # messages

    def _send_message(self, message: ComparisonMessage) -> None:
        self.outgoing_messages.append(message)

    def _has_response(self) -> bool:
        return bool(self._responses)

    def _pop_response(self, kind: type[_Response]) -> _Response:
        response = self._responses.pop(0)
        if isinstance(response, DigestRefusal):
            raise ComparisonError(f"{self.peer}: {response.reason}")
        if not isinstance(response, kind):
            raise ComparisonError(f"{self.peer} has sent an unexpected response")
        return response


def is_source_message_received(state: RecordState, context: ComparisonContext) -> bool:
    """Return whether the message of a state has been received; True if none is known."""
    return not state.client or context.has_message(state.client, state.sequence)


def _key_batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield keys, as many at a time as fit into a message."""
    batch: list[str] = []
    size = 0
    for key in keys:
        length = 4 * len(key) + _KEY_BYTES
        if batch and (
            size + length > MAX_COMPARISON_MESSAGE_SIZE or len(batch) >= _MAX_KEYS_PER_REQUEST
        ):
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += length
    if batch:
        yield batch


def prevails(state: RecordState, other: RecordState, repairs: frozenset[int]) -> bool:
    """Return whether a repair keeps one state, and publishes it again, rather than the other.

    Args:
        state: the state that may be kept.
        other: the other.
        repairs: the publishers' parts of the repairs of the two instances; see `publisher_part`.
    """
    return _rank(state, repairs) > _rank(other, repairs)


def _rank(state: RecordState, repairs: frozenset[int]) -> tuple[bool, bool, int, int, int]:
    is_repair = publisher_part(state.client) in repairs
    return bool(state.digest), not is_repair, state.client, state.sequence, state.digest
