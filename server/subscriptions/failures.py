"""What fails on behalf of a subscription costs that subscription, and nobody else.

A message is matched and framed for its subscribers inside the command of whoever publishes it, and
perhaps read from the log for many subscribers at once. What goes wrong there for one of them is no
reason to give up the command, or to leave out the others: that subscription ends, and its client
and the log are told why. It ends a little later, since whoever tells of the failure goes through
the subscriptions just now; thousands may have the filter that has failed, so they end in slices
(server/core/turns.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from amperage.wire.header import Header
from server.expressions.effort import TooCostlyError

if TYPE_CHECKING:
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.subscriptions.subscription import Subscription

_REASON: Final = "subscription ended"
_AT_ONCE: Final = 20
"""Subscriptions that end in a slice."""


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


class _Failure(NamedTuple):
    """A subscription that has to end. See `Failures.report`."""

    client: FailedFor
    sub_id: str
    topic: str
    error: Exception


class Failures:
    """Ends the subscriptions of an engine on whose behalf something has failed.

    Args:
        queue: has work wait for its slices; see `Turns.queue`.
        log: where it is said.
    """

    def __init__(self, queue: Callable[[Sliced], None], log: Log) -> None:
        self._queue = queue
        self._log = log
        self._reported: deque[_Failure] = deque()
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
        self._reported.append(_Failure(client, sub_id, topic, error))
        if len(self._reported) == 1:
            self._queue(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        client = self._reported[0].client.client_name if self._reported else ""
        return client, "failed subscriptions"

    def step(self) -> bool:
        """End some of the subscriptions. See `Sliced.step`."""
        for _ in range(min(_AT_ONCE, len(self._reported))):
            failure = self._reported.popleft()
            try:
                self._end(failure)
            except Exception as error:  # whatever it is, the others end all the same
                client, sub_id = failure.client.client_name, failure.sub_id
                text = f"the end of subscription {sub_id!r} of client[{client}]"
                self._log.emit("01-0004", text=text, error=repr(error))
        return bool(self._reported)

    def _end(self, failure: _Failure) -> None:
        client, sub_id, topic, error = failure
        self._ending.discard((client.number, sub_id))
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
                detail=problem,
            )
        )


def give_up_on(subscriptions: Iterable[Subscription], error: Exception) -> None:
    """Take note of what has failed on behalf of some subscriptions. See `Failures`."""
    for subscription in subscriptions:
        subscriber, topic = subscription.subscriber, subscription.selector.text
        subscriber.subscription_failed(subscription.sub_id, topic, error)
