"""What a limited permit makes of what somebody asks for.

Theory of operation. A permit is not checked beside what a client asks for, it becomes a part of it,
topic by topic, when a subscription is attached to a topic or a query begins. So nothing has to be
asked when messages come, and equal filters of many subscriptions are decided once, as ever:

    asked for                        with a filter F and a select list L permitted
    a filter C                       F AND C, in which C reads NULL for what L hides
    an order                         the terms of it that L does not hide
    a select list S                  S of what L has left
    a projection and its grouping    the same, of messages of which L hides something
    conflation by fields             by what L has left of them
    nothing about it                 F, and what L leaves

F is asked about whole messages, hidden fields included; nothing of the client's is, since an answer
to a question is a way to see what is asked about.

A record that somebody may see no more is out of focus for them: `Barrier` sees to it that they are
told so with the state that they knew, and not with the new one; and that a record that comes into
view is sent whole, since a delta would reveal its previous state.

Source: AMPS User Guide, Content Filtered Entitlements; Entitlement Select Lists; Out-of-Focus
Reason Codes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from server.expressions import conjuncts
from server.expressions.compile_message import compile_filter
from server.expressions.context import NO_CONTEXT
from server.expressions.effort import Allowance
from server.expressions.hiding import hide
from server.expressions.inference import as_read
from server.expressions.tree import And, paths
from server.message_types.selection import selection_of
from server.sow.record_context import asks_for_context, context_of
from server.subscriptions.presentation import SelectList

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.expressions import Functions
    from server.expressions.tree import Expr, Field, OrderTerm
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.sow.records import Record
    from server.subscriptions.presentation import Presentation
    from server.subscriptions.record_delivery import RecordMessage
    from server.subscriptions.subscription import Subscription

ENTITLEMENT: Final = "entitlement"
"""Why a record is out of focus that may be seen no more (Out-of-Focus Reason Codes)."""


def permitted_filter(permit: Permit, wanted: Expr | None) -> Expr | None:
    """What messages have to match that are to be sent.

    Args:
        permit: what the client may see of the topic.
        wanted: the client's own filter, None for all messages.
    """
    if wanted is not None and permit.select is not None:
        wanted = hide(wanted, permit.select.shows)
    if permit.filter is None or wanted is None:
        return wanted if permit.filter is None else permit.filter
    return And((*conjuncts(permit.filter), *conjuncts(wanted)))


def permitted_order(permit: Permit, wanted: tuple[OrderTerm, ...]) -> tuple[OrderTerm, ...]:
    """The order that a client may see records in."""
    select = permit.select
    if select is None:
        return wanted
    return tuple(term for term in wanted if select.shows(term.identifier.path))


def permitted_fields(permit: Permit, wanted: Sequence[Field]) -> Sequence[Field]:
    """The fields of a projection, which ask for nothing that tells of all fields of a message.

    What they read of hidden fields is NULL in the rows that they are computed from.
    """
    if permit.select is None:
        return wanted
    return [replace(field, source=hide(field.source, lambda _: True)) for field in wanted]


def permitted_presentation(
    permit: Permit, wanted: Presentation, message_type: MessageType
) -> Presentation:
    """The form in which messages are sent."""
    if permit.select is None:
        return wanted
    binding = SelectList(permit.select_text, permit.select, message_type, is_binding=True)
    return replace(wanted, permitted=binding)


def entitled(subscription: Subscription, permit: Permit, message_type: MessageType) -> Subscription:
    """A subscription as it is on one topic; itself, where it may have everything.

    What is made of groups of records is presented as its client asks for: the records that are
    taken together have lost what is hidden (server/subscriptions/aggregate.py).
    """
    if not permit.is_limited:
        return subscription
    page, presentation = subscription.page, subscription.presentation
    if subscription.aggregation is None:
        presentation = permitted_presentation(permit, presentation, message_type)
        if page is not None:
            page = replace(page, order_by=permitted_order(permit, page.order_by))
    return structs.replace(
        subscription,
        filter=permitted_filter(permit, subscription.filter),
        presentation=presentation,
        page=page,
        permit=permit,
    )


class Barrier:
    """Limits messages about records that a user sees in some states, and not in others.

    Args:
        permitted: what records have to match to be seen.
        message_type: how they are read.
        functions: what the filter may call.
    """

    __slots__ = ("_asks", "_effort", "_extract", "_matches", "_type")

    def __init__(self, permitted: Expr, message_type: MessageType, functions: Functions) -> None:
        self._type: Final = message_type
        self._effort: Final = Allowance()
        self._extract: Final = message_type.extractor(paths(permitted))
        read = as_read(permitted, message_type)
        self._matches: Final = compile_filter(read, functions, effort=self._effort)
        self._asks: Final = asks_for_context(permitted, functions)

    def told(self, message: RecordMessage) -> RecordMessage:
        """What is said instead of a message; itself, if the state that it gives may be seen.

        Else it is the state before that, and one without fields if not even that may be seen.
        """
        record = message.record
        if self._lets(record, message.body):
            return message
        previous = message.previous
        if previous is None or not self._lets(record, previous):
            previous = self._emptied(message.body)
        return message.barred(previous, ENTITLEMENT)

    def hid(self, message: RecordMessage) -> bool:
        """Return whether the state before could not be seen, so that a delta would tell of it."""
        previous = message.previous
        return previous is not None and not self._lets(message.record, previous)

    def _emptied(self, body: bytes) -> bytes:
        """A body without any of its fields."""
        if not self._type.capabilities.select:
            return b""
        return SelectList("", selection_of(()), self._type, is_binding=True).apply(body)

    def _lets(self, record: Record, body: bytes) -> bool:
        """Whether a state of a record may be seen."""
        self._effort.renew()
        context = NO_CONTEXT
        if self._asks:
            context = context_of(record if record.body == body else record._replace(body=body))
        return self._matches(self._extract(body), context)
