"""What fails on behalf of a subscription costs that subscription, and nobody else.

A message is matched and framed for its subscribers inside the command of whoever publishes it, and
perhaps read from the log for many subscribers at once. What goes wrong there for one of them is no
reason to give up the command, or to leave out the others: that subscription ends, and its client
and the log are told why. It ends a little later, since whoever tells of the failure goes through
the subscriptions just now.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from server.expressions.effort import TooCostlyError
from server.wire.header import Header

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.subscriptions.subscription import Subscription

_REASON: Final = "subscription ended"


class FailedFor(Protocol):
    """The client that a subscription which has failed belongs to."""

    @property
    def number(self) -> int:
        """Distinguishes it from all others of the process."""

    @property
    def client_name(self) -> str:
        """Its name."""

    @property
    def is_open(self) -> bool:
        """Whether it is still served."""

    @property
    def subscriptions(self) -> Container[str]:
        """The ids of its subscriptions."""

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription."""

    def send(self, header: Header) -> None:
        """Send it a message that is nothing but a header."""


class Failures:
    """Ends the subscriptions of an engine on whose behalf something has failed.

    Args:
        clock: tells when there is time for that.
        log: where it is said.
        flush: called when clients have been told.
    """

    def __init__(self, clock: Clock, log: Log, flush: Callable[[], None]) -> None:
        self._clock = clock
        self._log = log
        self._flush = flush
        self._ending: set[tuple[int, str]] = set()  # numbers of sessions, ids of subscriptions

    def report(self, client: FailedFor, sub_id: str, topic: str, error: Exception) -> None:
        """Take note of what has failed on behalf of a subscription.

        Args:
            client: whose it is.
            sub_id: its id.
            topic: the topics that it is for, as its client named them.
            error: what has failed.
        """
        if (client.number, sub_id) in self._ending:
            return
        self._ending.add((client.number, sub_id))
        is_costly = isinstance(error, TooCostlyError)
        problem = str(error) if is_costly else repr(error)
        self._log.emit(
            "14-0005" if is_costly else "14-0004",
            client=client.client_name,
            sub_id=sub_id,
            topic=topic,
            error=problem,
        )
        if not is_costly:
            problem = f"the server failed on behalf of this subscription: {problem}"
        self._clock.call_later(0, partial(self._end, client, sub_id, problem))

    def _end(self, client: FailedFor, sub_id: str, detail: str) -> None:
        self._ending.discard((client.number, sub_id))
        if not client.is_open or sub_id not in client.subscriptions:
            return
        client.end_subscription(sub_id)
        client.send(
            Header(
                command="ack",
                acks="processed",
                status="failure",
                sub_id=sub_id,
                reason=_REASON,
                detail=detail,
            )
        )
        self._flush()


def give_up_on(subscriptions: Iterable[Subscription], error: Exception) -> None:
    """Take note of what has failed on behalf of some subscriptions. See `Failures`."""
    for subscription in subscriptions:
        subscriber, topic = subscription.subscriber, subscription.selector.text
        subscriber.subscription_failed(subscription.sub_id, topic, error)
