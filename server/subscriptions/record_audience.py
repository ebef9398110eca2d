"""Who hears of a change of a record, and in which form.

Theory of operation. What a subscription is sent follows from whether it matched the record's state
before the change and whether it matches the state after it:

    before  after
      no     yes     the record (to a delta subscription that tracks focus: whole)
      yes    yes     the record, or to a delta subscription what is different
      yes    no      `oof`, if the subscription tracks focus
      no     no      nothing

So the deliveries of a change depend only on the filters that match before and after, and on whether
there was a record and is one. They are prepared for each such combination when it first occurs. The
state before is matched only if some subscription tracks focus. Connections without any filter on
the topic get every change; their deliveries are prepared apart from the others', of which there are
as many as combinations.

Subscriptions of one connection share messages as they do on any topic; if one of them wants a
record whole, none gets a delta of it (AMPS User Guide, Multiple Subscriptions and Delta Subscribe).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from server.expressions.context import NO_CONTEXT, MessageContext
from server.sow.record_context import context_of
from server.subscriptions.audience import Audience
from server.subscriptions.difference import Differ
from server.subscriptions.matching import Filter
from server.subscriptions.presentation import Presentation
from server.subscriptions.record_conflation import ConflatedRecordDelivery, Form
from server.subscriptions.record_delivery import (
    DeltaDelivery,
    Framer,
    RecordDelivery,
    RecordFramer,
    RecordMessage,
    Trace,
    WholeDelivery,
)
from server.subscriptions.sink import SinkFramer, WatchedFramer
from server.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.sow.records import Change, Record
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.outbox import Outbox

_MOST_COMBINATIONS_KEPT: Final = 16_384


class Kind(Enum):
    """What happened to a record."""

    INSERT = "insert"
    UPDATE = "update"
    REMOVAL = "removal"


class _Case(NamedTuple):
    """A combination that decides who hears what.

    Attributes:
        kind: what happened.
        after: the filters that match the new state.
        before: the filters that matched the old state.
    """

    kind: Kind
    after: tuple[Filter, ...]
    before: tuple[Filter, ...]


class RecordAudience(Audience):
    """The subscriptions of one topic with records.

    Args:
        message_type: the type that the topic is scoped to.
        name: the topic's name.
        functions: what filters may call.
        differ: makes deltas of its records.
    """

    __slots__ = (
        "_before_counts",
        "_differ",
        "_filtered",
        "_is_stale",
        "_prepared",
        "_tracks_focus",
        "_unfiltered",
    )

    def __init__(
        self, message_type: MessageType, name: str, functions: Functions, differ: Differ
    ) -> None:
        super().__init__(message_type, name, functions)
        self._differ = differ
        self._is_stale = False
        self._tracks_focus = False
        self._before_counts = False  # whether it matters what a record's old state matched
        self._unfiltered: list[Subscription] = []  # of connections without any filter here
        self._filtered: list[Subscription] = []
        self._prepared: dict[Kind | _Case, list[RecordDelivery]] = {}

    def _changed(self) -> None:
        self._is_stale = True

    def announce(self, change: Change, envelope: Envelope, reason: str) -> None:
        """Tell subscribers about a change.

        Args:
            change: what happened to a record.
            envelope: where it comes from.
            reason: why those hear of it whose subscription matches no more.
        """
        if not self._subscriptions:
            return
        if self._is_stale:
            self._prepare()
        record, previous = change.record, change.previous
        if record is None:
            if previous is None or not self._tracks_focus:
                return
            kind = Kind.REMOVAL
        else:
            kind = Kind.INSERT if previous is None else Kind.UPDATE
        deliveries = self._prepared.get(kind)
        if deliveries is None:
            deliveries = self._deliveries(self._unfiltered, kind, set(), set())
            self._prepared[kind] = deliveries
        if self._filtered:
            deliveries = deliveries + self._to_filtered(kind, change, envelope)
        state = record or previous
        if not deliveries or state is None:
            return
        message = RecordMessage(
            change.key,
            state.body,
            None if previous is None else previous.body,
            envelope,
            self._differ,
            reason,
            state.correlation_id,
        )
        for delivery in deliveries:
            delivery.deliver(message)

    def _prepare(self) -> None:
        self._is_stale = False
        self._unfiltered, self._filtered = self._by_connection()
        self._tracks_focus = any(one.tracks_focus for one in self._subscriptions)
        self._before_counts = any(one.tracks_focus for one in self._filtered)
        self._prepared.clear()

    def _to_filtered(self, kind: Kind, change: Change, envelope: Envelope) -> list[RecordDelivery]:
        after: tuple[Filter, ...] = ()
        before: tuple[Filter, ...] = ()
        if change.record is not None:
            after = self._match(change.record, envelope)
        if change.previous is not None and self._before_counts:
            before = self._match(change.previous, None)
        case = _Case(kind, after, before)
        deliveries = self._prepared.get(case)
        if deliveries is None:
            if len(self._prepared) >= _MOST_COMBINATIONS_KEPT:
                self._prepared.clear()
            deliveries = self._prepared[case] = self._deliveries(
                self._filtered, kind, set(after), set(before)
            )
        return deliveries

    def _match(self, record: Record, envelope: Envelope | None) -> tuple[Filter, ...]:
        """The filters that a state of a record matches; only a new state has an envelope."""
        context: MessageContext = NO_CONTEXT
        if self._filters.asks_for_context:
            context = context_of(record)
            if envelope is not None:
                envelope.describe_publisher(context)
        return self._filters.match(record.body, context)

    # ---- preparing

    def _deliveries(
        self,
        subscriptions: Iterable[Subscription],
        kind: Kind,
        after: set[Filter],
        before: set[Filter],
    ) -> list[RecordDelivery]:
        conflated: list[RecordDelivery] = []
        groups: dict[tuple[Outbox, Presentation, bool], list[tuple[Subscription, Form]]] = {}
        for subscription in subscriptions:
            form = self._form(subscription, kind, after, before)
            if form is None:
                continue
            if subscription.conflater is not None:
                conflated.append(self._conflated(subscription, form))
                continue
            leaves = form is Form.LEAVING
            group = subscription.outbox, subscription.presentation, leaves
            groups.setdefault(group, []).append((subscription, form))
        return [self._delivery_for(group) for group in groups.values()] + conflated

    def _form(
        self, subscription: Subscription, kind: Kind, after: set[Filter], before: set[Filter]
    ) -> Form | None:
        """What a subscription is sent; None for nothing. See the table at the top."""
        filter_ = self._subscriptions[subscription]
        matched = kind is not Kind.INSERT and (filter_ is None or filter_ in before)
        if kind is Kind.REMOVAL or not (filter_ is None or filter_ in after):
            return Form.LEAVING if matched and subscription.tracks_focus else None
        if not subscription.delta or not self._differ.works or kind is Kind.INSERT:
            return Form.WHOLE
        returns = subscription.tracks_focus and not matched
        return Form.WHOLE if returns else Form.DELTA

    def _delivery_for(self, group: Sequence[tuple[Subscription, Form]]) -> RecordDelivery:
        subscriptions = [subscription for subscription, _ in group]
        if any(form is not Form.DELTA for _, form in group):
            leaves = group[0][1] is Form.LEAVING
            return WholeDelivery(self._framer("oof" if leaves else "p", subscriptions))
        wanting_empties = [one for one in subscriptions if not one.no_empties]
        return DeltaDelivery(
            self._framer("p", subscriptions),
            self._framer("p", wanting_empties) if wanting_empties else None,
        )

    def _conflated(self, subscription: Subscription, form: Form) -> RecordDelivery:
        assert subscription.conflater is not None  # noqa: S101 - for the type checker
        return ConflatedRecordDelivery(
            subscription,
            subscription.conflater,
            self.name,
            form,
            self._framer("p", [subscription]),
            self._framer("oof", [subscription]),
        )

    def _framer(self, command: str, subscriptions: Sequence[Subscription]) -> RecordFramer:
        session, sink = subscriptions[0].session, subscriptions[0].sink
        presentation = subscriptions[0].presentation
        if sink is not None:
            return SinkFramer(sink, self.name, presentation, leaves=command == "oof")
        sub_ids = [subscription.sub_id for subscription in subscriptions]
        trace: Trace | None = None
        if session.engine.log.enabled("17-0001"):
            emit, client = session.engine.log.emit, session.client_name
            header = f"{{topic {self.name}}}"

            def trace(command: str, body: bytes) -> None:
                emit("17-0001", client=client, command=command, header=header, body=body)

        outbox = subscriptions[0].outbox
        framer = Framer(outbox, command, self.name, sub_ids, presentation, trace)
        watchers = session.engine.hooks.delivery_watchers(self.message_type.name, self.name)
        if command == "oof" or not watchers:
            return framer
        return WatchedFramer(framer, watchers, session, self.name)
