"""The instance that answers when another one compares its records with those here.

It executes requests in time slices, one after the other; a new survey cancels earlier requests. See
`comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from server.replication.anti_entropy.comparison import (
    MAX_LISTED_KEYS,
    ComparisonContext,
    is_source_message_received,
)
from server.replication.anti_entropy.digests import (
    ComparableRecords,
    RecordState,
    digest_of,
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

_KEYS_IN_WORD: Final = 256
_KEY_BYTES: Final = 16


class ComparisonResponder:
    """Answers the requests of one other instance.

    Args:
        peer: its name.
        find: returns the records of a topic by message type and name; None if they are not
            compared.
        services: the other state of this instance.

    Attributes:
        outgoing: messages to be sent.
        topic: the topic that is being compared, message type and name; None if none is.
    """

    def __init__(
        self,
        peer: str,
        find: Callable[[str, str], ComparableRecords | None],
        services: ComparisonContext,
    ) -> None:
        self.outgoing: list[ComparisonMessage] = []
        self.topic: tuple[str, str] | None = None
        self._peer = peer
        self._find = find
        self._services = services
        self._number = 0
        self._records: ComparableRecords | None = None
        self._work: Iterator[None] | None = None
        self._list: list[tuple[str, int]] = []
        self._look: StateRequest | None = None

    def take(
        self, word: DigestRequest | KeyListRequest | KeyListContinuation | StateRequest
    ) -> None:
        """Accept a request of the other instance."""
        if isinstance(word, DigestRequest):
            self._survey(word)
            return
        if word.number != self._number or self._records is None:
            self._say(DigestRefusal(word.number, "nothing is being compared"))
        elif isinstance(word, KeyListRequest):
            self._work = self._make_list(self._records, frozenset(word.ranges))
        elif isinstance(word, KeyListContinuation):
            self._send_listed()
        else:
            self._look = word

    def stop(self) -> None:
        """Drop all requests, because the other instance is gone."""
        self._number, self._records, self._work, self._look = 0, None, None, None
        self.topic = None
        self._list.clear()
        self.outgoing.clear()

    @property
    def is_waiting(self) -> bool:
        """True while it waits for entries in flight."""
        return self._look is not None

    def step(self) -> bool:
        """Do a time slice of work; return whether there is more to do at once."""
        if self._work is not None:
            if next(self._work, self) is self:
                self._work = None
            return self._work is not None
        look, records = self._look, self._records
        if look is None or records is None:
            return False
        if self._services.has_taken(self._peer, look.upto):
            self._answer(look, records)
            self._look = None
        return False

    def _survey(self, word: DigestRequest) -> None:
        self.stop()
        records = self._find(word.message_type, word.topic)
        if records is None:
            reason = f"the records of {word.topic} ({word.message_type}) are not replicated"
            self._say(DigestRefusal(word.number, reason))
            return
        self._number, self._records = word.number, records
        self.topic = word.message_type, word.topic
        self._work = self._make_survey(records)

    def _make_survey(self, records: ComparableRecords) -> Iterator[None]:
        for made in make_range_digests(records):
            if made is not None:
                self._say(DigestResponse(self._number, made.records, made.pack()))
            yield

    def _make_list(self, records: ComparableRecords, ranges: frozenset[int]) -> Iterator[None]:
        self._list.clear()
        for portion in portions(records):
            for key, body in within(portion, ranges):
                if len(self._list) < MAX_LISTED_KEYS:
                    self._list.append((key, digest_of(key, body)))
            yield
        self._list.reverse()
        self._send_listed()

    def _send_listed(self) -> None:
        """Send as much of the list as fits into a message."""
        keys: list[str] = []
        digests: list[int] = []
        size = 0
        while self._list and len(keys) < _KEYS_IN_WORD and size < MAX_COMPARISON_MESSAGE_SIZE:
            length = 4 * len(self._list[-1][0]) + _KEY_BYTES
            if keys and size + length > MAX_COMPARISON_MESSAGE_SIZE:
                break
            key, digest = self._list.pop()
            keys.append(key)
            digests.append(digest)
            size += length
        self._say(KeyListResponse(self._number, keys, digests, not self._list))

    def _answer(self, look: StateRequest, records: ComparableRecords) -> None:
        services = self._services
        states: list[RecordState] = [records.state(key) for key in look.keys]
        had = [is_source_message_received(state, services) for state in look.states]
        self._say(StateResponse(look.number, look.look, services.last_txid, states, had))

    def _say(self, word: ComparisonMessage) -> None:
        self.outgoing.append(word)
