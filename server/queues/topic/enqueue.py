"""Selects the log entries that enter a queue, and computes their details (priority and others).

A queue without expressions parses no body: some bodies are not valid for their message type.

Source: AMPS User Guide, Configuring Queues in a SOW (Filter, Priority, BarrierExpression). OrderKey
is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from server.expressions import ContextKind, parse, references
from server.expressions.backends.compile_message import compile_value
from server.expressions.filter_form import lift_constants
from server.expressions.inference import with_inferred_types
from server.expressions.numerals import numeral
from server.message_types.base import BodyError
from server.queues.core import MessageDetails
from server.queues.core.details import NO_MESSAGE_DETAILS
from server.storage.journal.format.layout import (
    CLIENT,
    EXPIRATION,
    SEQUENCE,
    SOW_KEY,
    TIMESTAMP,
    TXID,
)
from server.storage.journal.publisher_table import publisher_part
from server.storage.journal.write.blocks import each
from server.topics.log_feed import make_recorded_messages
from server.topics.subscriptions.matching.filter_set import FilterSet
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.expressions import Functions
    from server.expressions.message_context import MessageContext
    from server.message_types.base import MessageType
    from server.queues.topic.redrive import RedrivePublishers
    from server.storage.journal import EntryBatch
    from server.storage.journal.format.layout import EntryRow
    from server.topics.log_feed import RecordedBatch
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.matching.filter_layout import Filter

_UINT64_RANGE: Final = 1 << 64

OnExpressionFailure = Callable[[Exception], None]
"""Callback for an expression of the configuration that raised an exception."""


EnqueueCallback: TypeAlias = Callable[
    [Sequence[int], Sequence[int], int, Sequence[int], MessageDetails], None
]
"""Enqueues messages of one publisher; see `MessageLifecycle.enqueue`."""


class Enqueuer:
    """Decides which messages enter a queue.

    Args:
        spec: the queue.
        message_type: parses bodies.
        functions: the functions that expressions may call.
        on_failure: called when an expression fails.
        first_owner: returns the instance that owns a message, by its path; empty for this one.
        redrive_publishers: knows the publishers of messages that are only for other queues of the
            topics.
        steady_times: returns the steady-clock times of log entries, by their txids and timestamps.
    """

    def __init__(
        self,
        spec: QueueSpec,
        message_type: MessageType,
        functions: Functions,
        on_failure: OnExpressionFailure,
        first_owner: Callable[[str], str],
        redrive_publishers: RedrivePublishers,
        steady_times: Callable[[Sequence[int], Sequence[int]], Sequence[int]],
    ) -> None:
        self._steady_times = steady_times
        self._first_owner = first_owner
        self._redrive_publishers = redrive_publishers
        self._filters = FilterSet(message_type, functions, lambda _, error: on_failure(error))
        self._filter = self._add(spec.filter, functions)
        self._barrier = self._add(spec.barrier_expression, functions)
        self._priority, self._key = (
            None if text is None else _ExpressionEvaluator(text, message_type, functions)
            for text in (spec.priority, spec.order_key)
        )

    def _add(self, text: str | None, functions: Functions) -> Filter | None:
        if text is None:
            return None
        expr = parse(text, ContextKind.STABLE_FILTER, functions)
        return self._filters.add(lift_constants(expr))

    def enqueue_entries(self, batch: EntryBatch, enqueue: EnqueueCallback) -> None:
        """Enqueue the admitted messages of a batch, in the order of the log.

        Args:
            batch: messages of the log.
            enqueue: enqueues messages; called with those of one publisher at a time.
        """
        if self._filters or self._priority or self._key:
            for position in range(len(batch.rows)):
                recorded, details = self.select_messages(
                    make_recorded_messages(batch.entry_at(position))
                )
                if recorded.bodies:
                    timestamps_us = [*each(recorded.timestamps_us, 1)]
                    times = self._steady_times(recorded.txids, timestamps_us)
                    enqueue(recorded.txids, times, recorded.client, recorded.sequences, details)
            return
        path = batch.origin.path
        owner, other_publishers = (
            self._first_owner(path),
            self._redrive_publishers.publisher_parts(path),
        )
        for (client, lifetime, has_key), group in groupby(batch.rows, _batch_key):
            if publisher_part(client) in other_publishers:
                continue
            rows = list(group)
            details = NO_MESSAGE_DETAILS
            if lifetime or has_key or owner:
                details = MessageDetails(
                    lifetimes=[lifetime * MICROSECONDS_PER_SECOND] * len(rows)
                    if lifetime
                    else None,
                    sow_keys=[row[SOW_KEY] for row in rows] if has_key else None,
                    owners=[owner] * len(rows) if owner else None,
                )
            txids = [row[TXID] for row in rows]
            enqueue(
                txids,
                self._steady_times(txids, [row[TIMESTAMP] for row in rows]),
                client,
                [row[SEQUENCE] for row in rows],
                details,
            )

    def select_messages(self, recorded: RecordedBatch) -> tuple[RecordedBatch, MessageDetails]:
        """Select the messages that enter the queue.

        Returns:
            The selected messages, and their details.
        """
        barriers = None
        if publisher_part(recorded.client) in self._redrive_publishers.publisher_parts(
            recorded.path
        ):
            return pick(recorded, ()), NO_MESSAGE_DETAILS
        if self._filters:
            recorded, barriers = self._apply_filters(recorded)
        count = len(recorded.bodies)
        lifetime_s = recorded.lifetime_s
        priority, key = self._priority, self._key
        owner = self._first_owner(recorded.path)
        if not (lifetime_s or recorded.sow_keys or priority or key or barriers or owner):
            return recorded, NO_MESSAGE_DETAILS
        return recorded, MessageDetails(
            barriers=barriers,
            lifetimes=[lifetime_s * MICROSECONDS_PER_SECOND] * count if lifetime_s else None,
            priorities=list(map(_as_priority, priority.evaluate_batch(recorded)))
            if priority
            else None,
            keys=list(map(_as_key, key.evaluate_batch(recorded))) if key else None,
            sow_keys=recorded.sow_keys or None,
            owners=[owner] * count if owner else None,
        )

    def _apply_filters(
        self, recorded: RecordedBatch
    ) -> tuple[RecordedBatch, Sequence[bool] | None]:
        matches = [
            self._filters.match(body, context)
            for body, context in zip(recorded.bodies, _contexts(recorded), strict=True)
        ]
        if self._filter is not None:
            positions = [
                position for position, filters in enumerate(matches) if self._filter in filters
            ]
            if len(positions) < len(matches):
                recorded = pick(recorded, positions)
                matches = [matches[position] for position in positions]
        if self._barrier is None:
            return recorded, None
        return recorded, [self._barrier in filters for filters in matches]


def _batch_key(row: EntryRow) -> tuple[int, int, bool]:
    """Return the batch key: publisher, lifetime, and whether there is a SOW key."""
    return row[CLIENT], row[EXPIRATION], row[SOW_KEY] > 0


class _ExpressionEvaluator:
    """Evaluates an expression for messages."""

    def __init__(self, text: str, message_type: MessageType, functions: Functions) -> None:
        expr = parse(text, ContextKind.VALUE, functions)
        layout = tuple(references(expr))
        self._extract = message_type.extractor([reference.path for reference in layout])
        self._evaluate = compile_value(with_inferred_types(expr, message_type), functions, layout)

    def evaluate_batch(self, recorded: RecordedBatch) -> Iterator[object]:
        """Return the value for each message, None where there is none."""
        for body, context in zip(recorded.bodies, _contexts(recorded), strict=True):
            try:
                yield self._evaluate(self._extract(body), context)
            except (BodyError, ArithmeticError):
                yield None


def _as_priority(value: object) -> float | None:
    """Return a value as a number, None if it is not one (AMPS User Guide, Priority Queues).

    A number beyond either end of the scale, of any size, is clamped to that end.
    """
    number = numeral(value) if isinstance(value, str) else value
    if isinstance(number, int | float):
        return max(min(number, _UINT64_RANGE), -1)  # NaN stays NaN
    return None


def _as_key(value: object) -> int:
    """Return the core's form of an order key: 0 for none, otherwise a 64-bit hash that is not 0.

    The hash may differ after a restart, and different keys may rarely collide.
    """
    return 0 if value is None else hash(value) % _UINT64_RANGE or 1


def _contexts(recorded: RecordedBatch) -> list[MessageContext]:
    """Return the context of each message for expressions."""
    return [
        context_of(recorded.envelope, recorded.topic, body, (recorded.client, sequence))
        for body, sequence in zip(recorded.bodies, recorded.sequences, strict=True)
    ]


def context_of(
    envelope: Envelope, topic: str, body: bytes, bookmark: tuple[int, int]
) -> MessageContext:
    """Return the context of a message for expressions; its topic is the one it was published to."""
    context = envelope.context(topic, body)
    client, sequence = bookmark
    context.bookmark = f"{client}|{sequence}|"
    return context


def pick(recorded: RecordedBatch, positions: Sequence[int]) -> RecordedBatch:
    """Return the messages at some positions."""
    timestamps_us = recorded.timestamps_us
    return recorded._replace(
        bodies=[recorded.bodies[position] for position in positions],
        txids=[recorded.txids[position] for position in positions],
        timestamps_us=timestamps_us
        if isinstance(timestamps_us, int)
        else [timestamps_us[position] for position in positions],
        sequences=[recorded.sequences[position] for position in positions],
        sow_keys=[recorded.sow_keys[position] for position in positions]
        if recorded.sow_keys
        else (),
    )
