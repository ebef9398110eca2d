"""Paginated subscriptions: reads the requested page, and refuses unsuitable commands.

Source: AMPS User Guide, Paginated SOW and Subscribe; Replacing the Options on a Subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import option_refusal
from server.expressions.topic_names import select_topics
from server.queues.topic.queue_topic import QueueTopic
from server.security.permissions import Permission
from server.topics.sow_topic import RecordTopic
from server.topics.subscriptions.subscription import PageTerms

if TYPE_CHECKING:
    from server.engine.commands.parsing.query_parameters import QueryTerms
    from server.engine.session import Session
    from server.expressions.topic_names import TopicSelector
    from server.storage.views.terms import AggregationTerms
    from server.topics.subscriptions.paging.page import Page
    from server.topics.subscriptions.subscription import Subscription


def read_page(terms: QueryTerms) -> PageTerms | None:
    """Return the page that a subscription requests; None if it is not paginated."""
    if terms.top_n is None or terms.skip_n is None:
        return None
    return PageTerms(terms.order_by, terms.skip_n, terms.skip_n + terms.top_n)


def single_topic(session: Session, selector: TopicSelector) -> TopicSelector:
    """Return the topic that a page is cut from.

    The name of a topic that the user may read selects that topic, even if it could be a regular
    expression.

    Raises:
        CommandRefusedError: the selector matches several topics, or the topic keeps no records.
    """
    if is_name(session, selector):
        return select_topics(selector.text, literal=True)
    if selector.is_regex:
        raise option_refusal(
            "skip_n", f"pages are cut from one topic, and {selector.text!r} is a regular expression"
        )
    raise option_refusal("skip_n", "only topics that keep records can be paged through")


def is_name(session: Session, selector: TopicSelector) -> bool:
    """Return whether a selector is the name of a topic with records that the user may read."""
    if session.engine.sow_registry.find(session.message_type, selector.text) is None:
        return False
    return session.get_permit(Permission.READ_TOPIC, selector.text).is_allowed


def check_replacement(
    selector: TopicSelector,
    page: PageTerms | None,
    aggregation: AggregationTerms | None,
    previous: Subscription | None,
) -> None:
    """Check that a subscription can replace another one.

    Args:
        selector: its topic.
        page: its page, None if it is not paginated.
        aggregation: its aggregation, None without one.
        previous: the subscription that it replaces, None if there is none.

    Raises:
        CommandRefusedError: it cannot.
    """
    if previous is None:
        return
    aggregated = aggregation is not None, previous.aggregation is not None
    if any(aggregated) and not (all(aggregated) and page is not None and previous.page is not None):
        raise _not_another_page()
    if previous.page is None:
        return
    if previous.replay is not None:
        raise option_refusal(
            "replace", f"subscription {previous.sub_id!r} is for a page of the past, and stays so"
        )
    if page is None:
        raise CommandRefusedError(
            "invalid option",
            f"subscription {previous.sub_id!r} is paginated: what replaces it needs the options"
            " top_n and skip_n as well",
        )
    if previous.page.order_by and not page.order_by:
        raise CommandRefusedError(
            "invalid orderby",
            f"subscription {previous.sub_id!r} has an order: what replaces it needs one as well",
        )
    if previous.selector.text != selector.text:
        raise CommandRefusedError(
            "invalid topic",
            f"subscription {previous.sub_id!r} is for a page of topic {previous.selector.text!r},"
            " which cannot be replaced by another topic",
        )


def check_same_groups(subscription: Subscription, previous: Subscription | None) -> None:
    """Check that an aggregated subscription has the groups of the one that it replaces.

    Raises:
        CommandRefusedError: it has others.
    """
    if previous is None or subscription.aggregation is None or previous.aggregation is None:
        return
    same_terms = subscription.aggregation.definition == previous.aggregation.definition
    if not same_terms or subscription.content_filter != previous.content_filter:
        raise _not_another_page()


def _not_another_page() -> CommandRefusedError:
    return option_refusal(
        "replace",
        "an aggregated subscription is replaced only by one for another page of it: with the same"
        " topic, filter, projection and grouping, and with top_n and skip_n",
    )


def records_topic(session: Session, name: str) -> RecordTopic | None:
    """Return the source of a topic's records, or of a queue's messages; None without one."""
    topic = session.find_topic(name)
    if isinstance(topic, QueueTopic):
        return topic.browser.record_topic
    return topic if isinstance(topic, RecordTopic) else None


def page_of(session: Session, subscription: Subscription | None) -> Page | None:
    """Return the page of a subscription that is placed; None if it is not paginated."""
    if subscription is None or subscription.page is None:
        return None
    topic = records_topic(session, subscription.selector.text)
    return None if topic is None else topic.page(subscription)
