"""Matching of filters for a whole batch of messages at once.

If a topic has few filters and each is a conjunction of comparisons, a message type may decide them
for many bodies in one call (server/message_types/bulk.py). Preparing that is worthwhile if a set of
filters stays unchanged for a while. Bodies that it leaves undecided are matched one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from server.expressions.backends.plain_tests import plain_tests
from server.message_types.bulk import MAX_BULK_FILTERS, UNDECIDED, BulkMessageType

if TYPE_CHECKING:
    from server.message_types.base import MessageType
    from server.message_types.bulk import BulkDecider, LiteralTest
    from server.topics.subscriptions.matching.filter_layout import Filter

_MIN_STABLE_MESSAGES: Final = 256
"""Messages after which a set of filters is expected to last."""


_MAX_SETS: Final = 1024
"""Cached sets of matching filters."""


class BatchMatcher:
    """Decides a set of filters for batches of messages, as long as the set stays the same.

    Args:
        message_type: parses bodies.

    Attributes:
        state: identifies the set of filters.
    """

    def __init__(self, message_type: MessageType) -> None:
        self._message_type = message_type
        self.state: object = None
        self._message_count = 0  # counted since `state` is current
        self._filters: Sequence[Filter] = ()
        self._decide: BulkDecider | None = None
        self._filters_by_bits: dict[int, tuple[Filter, ...]] = {}  # by bits of the matching filters

    def is_ready(self, state: object, filters: Collection[Filter], messages: int) -> bool:
        """Count messages, prepare if worthwhile, and return True if `decide` can be called.

        Args:
            state: identifies the set of filters: another object when the filters have changed.
            filters: the filters.
            messages: number of messages that are about to be decided.
        """
        if self.state is not state:
            self.state = state
            self._message_count = 0
            self._decide = None
        previous_count = self._message_count
        self._message_count = previous_count + messages
        if previous_count < _MIN_STABLE_MESSAGES <= self._message_count:
            self._prepare(list(filters))
        return self._decide is not None

    def decide(
        self, bodies: Sequence[bytes]
    ) -> Iterator[tuple[int, int, tuple[Filter, ...] | None]]:
        """Decide the filters for messages, if `is_ready` has returned True.

        Returns:
            Ranges of messages as begin, end and matching filters; None in place of the filters for
            messages that have to be matched one by one. Messages without a match are omitted.
        """
        assert self._decide is not None  # noqa: S101 - see above
        for begin, end, bits in self._decide(bodies):
            yield begin, end, None if bits == UNDECIDED else self._filters_of(bits)

    def _filters_of(self, bits: int) -> tuple[Filter, ...]:
        filters = self._filters_by_bits.get(bits)
        if filters is None:
            if len(self._filters_by_bits) >= _MAX_SETS:
                self._filters_by_bits.clear()
            filters = tuple(one for bit, one in enumerate(self._filters) if bits >> bit & 1)
            self._filters_by_bits[bits] = filters
        return filters

    def _prepare(self, filters: Sequence[Filter]) -> None:
        self._filters_by_bits.clear()
        if len(filters) > MAX_BULK_FILTERS or not isinstance(self._message_type, BulkMessageType):
            return
        tests: list[Sequence[LiteralTest]] = []
        for filter_ in filters:
            filter_tests = plain_tests(filter_.expr)
            if filter_tests is None:
                return
            tests.append(filter_tests)
        self._filters = filters
        self._decide = self._message_type.bulk_decider(tests)
