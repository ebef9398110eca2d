"""The responding side of a comparison: another instance compares its records with those here.

Requests are executed in time slices, one after the other; a new `DigestRequest` cancels earlier
requests. See comparison.py.
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

_MAX_KEYS_PER_MESSAGE: Final = 256
_KEY_BYTES: Final = 16


class ComparisonResponder:
    """Responds to the requests of one other instance.

    Args:
        peer: its name.
        find_records: returns the records of a topic by message type and name; None if they are not
            compared.
        context: the other state of this instance.

    Attributes:
        outgoing_messages: messages to be sent.
        topic: the topic that is being compared, message type and name; None if none is.
    """

    def __init__(
        self,
        peer: str,
        find_records: Callable[[str, str], ComparableRecords | None],
        context: ComparisonContext,
    ) -> None:
        self.outgoing_messages: list[ComparisonMessage] = []
        self.topic: tuple[str, str] | None = None
        self._peer = peer
        self._find_records = find_records
        self._context = context
        self._number = 0
        self._records: ComparableRecords | None = None
        self._current_task: Iterator[None] | None = None
        self._unsent_keys: list[tuple[str, int]] = []
        self._state_request: StateRequest | None = None

    def receive_request(
        self, message: DigestRequest | KeyListRequest | KeyListContinuation | StateRequest
    ) -> None:
        """Accept a request of the other instance."""
        if isinstance(message, DigestRequest):
            self._start_digests(message)
            return
        if message.number != self._number or self._records is None:
            self._send_message(DigestRefusal(message.number, "no comparison is in progress"))
        elif isinstance(message, KeyListRequest):
            self._current_task = self._list_keys(self._records, frozenset(message.ranges))
        elif isinstance(message, KeyListContinuation):
            self._send_key_list()
        else:
            self._state_request = message

    def cancel_requests(self) -> None:
        """Drop all requests, because the other instance is gone."""
        self._number, self._records, self._current_task, self._state_request = 0, None, None, None
        self.topic = None
        self._unsent_keys.clear()
        self.outgoing_messages.clear()

    @property
    def is_awaiting_entries(self) -> bool:
        """True while it waits for entries in flight."""
        return self._state_request is not None

    def run_slice(self) -> bool:
        """Do a time slice of work; return whether there is more to do at once."""
        if self._current_task is not None:
            if next(self._current_task, self) is self:
                self._current_task = None
            return self._current_task is not None
        state_request, records = self._state_request, self._records
        if state_request is None or records is None:
            return False
        if self._context.has_received(self._peer, state_request.upto):
            self._send_states(state_request, records)
            self._state_request = None
        return False

    def _start_digests(self, message: DigestRequest) -> None:
        self.cancel_requests()
        records = self._find_records(message.message_type, message.topic)
        if records is None:
            reason = f"the records of {message.topic} ({message.message_type}) are not replicated"
            self._send_message(DigestRefusal(message.number, reason))
            return
        self._number, self._records = message.number, records
        self.topic = message.message_type, message.topic
        self._current_task = self._compute_digests(records)

    def _compute_digests(self, records: ComparableRecords) -> Iterator[None]:
        for digests in make_range_digests(records):
            if digests is not None:
                self._send_message(
                    DigestResponse(self._number, digests.record_count, digests.pack())
                )
            yield

    def _list_keys(self, records: ComparableRecords, ranges: frozenset[int]) -> Iterator[None]:
        self._unsent_keys.clear()
        for portion in portions(records):
            for key, body in within(portion, ranges):
                if len(self._unsent_keys) < MAX_LISTED_KEYS:
                    self._unsent_keys.append((key, digest_of(key, body)))
            yield
        self._unsent_keys.reverse()
        self._send_key_list()

    def _send_key_list(self) -> None:
        """Send as much of the list as fits into a message."""
        keys: list[str] = []
        digests: list[int] = []
        size = 0
        while (
            self._unsent_keys
            and len(keys) < _MAX_KEYS_PER_MESSAGE
            and size < MAX_COMPARISON_MESSAGE_SIZE
        ):
            length = 4 * len(self._unsent_keys[-1][0]) + _KEY_BYTES
            if keys and size + length > MAX_COMPARISON_MESSAGE_SIZE:
                break
            key, digest = self._unsent_keys.pop()
            keys.append(key)
            digests.append(digest)
            size += length
        self._send_message(KeyListResponse(self._number, keys, digests, not self._unsent_keys))

    def _send_states(self, request: StateRequest, records: ComparableRecords) -> None:
        context = self._context
        states: list[RecordState] = [records.record_state(key) for key in request.keys]
        has_messages = [is_source_message_received(state, context) for state in request.states]
        self._send_message(
            StateResponse(
                request.number, request.request_number, context.last_txid, states, has_messages
            )
        )

    def _send_message(self, message: ComparisonMessage) -> None:
        self.outgoing_messages.append(message)
