"""Applies limited entitlements (permits) to subscriptions and queries.

Theory of operation. A permit is not checked in addition to a client's request: it becomes a part of
it, topic by topic, when a subscription is attached to a topic or a query begins. So nothing has to
be checked per message, and equal filters of many subscriptions are still decided once:

    requested                        with a filter F and a select list L permitted
    a filter C                       F AND C, in which C reads NULL for fields that L hides
    an order                         the terms of it that L does not hide
    a select list S                  S of the fields that L leaves
    a projection and its grouping    the same, of messages of which L hides something
    conflation by fields             by those of them that L leaves
    nothing about it                 F, and the fields that L leaves

F is evaluated on whole messages, hidden fields included; no expression of the client is, because
its result would reveal hidden fields.

A record that a user is not entitled to any more is out of focus: `EntitlementVisibility` replaces
the new state in the `oof` message by the one that the user knew. It also has a record sent whole
that the user becomes entitled to, since a delta would reveal its previous state.

Source: AMPS User Guide, Content Filtered Entitlements; Entitlement Select Lists; Out-of-Focus
Reason Codes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from server.expressions import conjuncts
from server.expressions.backends.compile_message import compile_filter
from server.expressions.filter_form import content_filter_of
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import NO_CONTEXT
from server.expressions.redaction import hide
from server.expressions.regex.budget import SearchAllowance
from server.expressions.tree import And, paths
from server.message_types.select_list import selection_of
from server.storage.sow.record_context import asks_for_context, context_of
from server.topics.subscriptions.delivery.presentation import SelectList

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.expressions import Functions
    from server.expressions.tree import Expr, Field, OrderTerm
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.presentation import Presentation
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.topics.subscriptions.subscription import Subscription

ENTITLEMENT: Final = "entitlement"
"""The `oof` reason for a record that may not be seen any more (Out-of-Focus Reason Codes)."""


def permitted_filter(permit: Permit, requested: Expr | None) -> Expr | None:
    """Return the filter that messages must match, from the permitted and the client's filter.

    Args:
        permit: the client's permit for the topic.
        requested: the client's own filter, None for all messages.
    """
    if requested is not None and permit.select is not None:
        requested = hide(requested, permit.select.includes_whole)
    if permit.filter is None or requested is None:
        return requested if permit.filter is None else permit.filter
    return And((*conjuncts(permit.filter), *conjuncts(requested)))


def permitted_order(permit: Permit, requested: tuple[OrderTerm, ...]) -> tuple[OrderTerm, ...]:
    """Return the requested order without its hidden terms."""
    select = permit.select
    if select is None:
        return requested
    return tuple(term for term in requested if select.includes_whole(term.identifier.path))


def permitted_fields(permit: Permit, requested: Sequence[Field]) -> Sequence[Field]:
    """Return the fields of a projection, without functions that reveal all fields of a message.

    Hidden fields are NULL already in the rows that the projection is computed from.
    """
    if permit.select is None:
        return requested
    return [replace(field, source=hide(field.source, lambda _: True)) for field in requested]


def permitted_presentation(
    permit: Permit, requested: Presentation, message_type: MessageType
) -> Presentation:
    """Return the requested presentation, limited to the permitted fields."""
    if permit.select is None:
        return requested
    select_list = SelectList(permit.select_text, permit.select, message_type, is_entitlement=True)
    return replace(requested, permitted=select_list)


def entitled(subscription: Subscription, permit: Permit, message_type: MessageType) -> Subscription:
    """Return a subscription as limited by a permit on one topic; itself, if there is no limit.

    Groups of records are presented as the client requests: hidden fields have been removed from the
    records before aggregation (server/topics/subscriptions/aggregate_subscription.py).
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
        content_filter=content_filter_of(permitted_filter(permit, subscription.filter)),
        terms=structs.replace(
            subscription.terms, presentation=presentation, page=page, permit=permit
        ),
    )


class EntitlementVisibility:
    """Limits messages about records that a user may see in some states, and not in others.

    Args:
        permitted: the filter that visible records match.
        message_type: parses bodies.
        functions: the functions that the filter may call.
    """

    __slots__ = ("_extract", "_matches", "_message_type", "_needs_context", "_search_allowance")

    def __init__(self, permitted: Expr, message_type: MessageType, functions: Functions) -> None:
        self._message_type: Final = message_type
        self._search_allowance: Final = SearchAllowance()
        self._extract: Final = message_type.extractor(paths(permitted))
        typed_filter = with_inferred_types(permitted, message_type)
        self._matches: Final = compile_filter(
            typed_filter, functions, search_counter=self._search_allowance
        )
        self._needs_context: Final = asks_for_context(permitted, functions)

    def visible_message(self, message: RecordMessage) -> RecordMessage:
        """Return the message to send in place of `message`; itself, if its state may be seen.

        Else it has the state before, or one without fields if that may not be seen either.
        """
        record = message.record
        if self._is_visible(record, message.body):
            return message
        previous = message.previous
        if previous is None or not self._is_visible(record, previous):
            previous = self._empty_body(message.body)
        return message.redacted(previous, ENTITLEMENT)

    def was_hidden(self, message: RecordMessage) -> bool:
        """Return True if the state before was hidden, so that a delta would reveal it."""
        previous = message.previous
        return previous is not None and not self._is_visible(message.record, previous)

    def _empty_body(self, body: bytes) -> bytes:
        """Return a body without any of its fields."""
        if not self._message_type.capabilities.select:
            return b""
        return SelectList("", selection_of(()), self._message_type, is_entitlement=True).apply(body)

    def _is_visible(self, record: Record, body: bytes) -> bool:
        """Return True if a state of a record may be seen."""
        self._search_allowance.reset()
        context = NO_CONTEXT
        if self._needs_context:
            context = context_of(record if record.body == body else record._replace(body=body))
        return self._matches(self._extract(body), context)
