"""Failures on behalf of a subscription end that subscription, and affect no other client.

A message is matched and framed for its subscribers inside the publisher's command, and perhaps read
from the log for many subscribers at once. An error for one of them must neither abort the command
nor skip the others: that subscription ends, and its client and the log get the reason. It ends
later, in a slice of the scheduler, because the caller that reports the failure iterates over the
subscriptions. Thousands may have the failed filter, so they end in slices
(server/engine/scheduler.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from amperage.wire.header import Header
from server.expressions.regex.budget import TooCostlyError

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.topics.subscriptions.subscription import Subscription
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask

_REASON: Final = "subscription ended"
_BATCH_SIZE: Final = 20
"""Subscriptions that end in a slice."""


class QueueRemovedError(Exception):
    """A consumer's queue has been removed."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue} has been removed from the configuration")


class _Failure(NamedTuple):
    """A reported failure: the subscription has to end. See `SubscriptionFailures.report`."""

    client: Session
    sub_id: str
    topic: str
    error: Exception


_MESSAGE_IDS: Final[Mapping[type[Exception], str]] = {
    TooCostlyError: "14-0005",
    QueueRemovedError: "14-0006",
}
"""The log entries of failures that are no defects of the server."""


class SubscriptionFailures:
    """Ends the subscriptions of an engine for which something has failed.

    Args:
        queue_task: queues work for the scheduler; see `Scheduler.queue_task`.
        log: gets an entry for each failure.
    """

    def __init__(self, queue_task: Callable[[EngineTask], None], log: ServerLog) -> None:
        self._queue_task = queue_task
        self._log = log
        self._pending_failures: deque[_Failure] = deque()
        self._pending_ids: set[tuple[int, str]] = set()  # numbers of sessions, ids of subscriptions

    def report(self, client: Session, sub_id: str, topic: str, error: Exception) -> None:
        """Queue the end of a subscription because of a failure.

        Args:
            client: its client.
            sub_id: its id.
            topic: its topics, as the client named them.
            error: the failure.
        """
        if (client.number, sub_id) in self._pending_ids:
            return
        self._pending_ids.add((client.number, sub_id))
        self._pending_failures.append(_Failure(client, sub_id, topic, error))
        if len(self._pending_failures) == 1:
            self._queue_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        client = self._pending_failures[0].client.client_name if self._pending_failures else ""
        return client, "failed subscriptions"

    def step(self) -> bool:
        """End some of the subscriptions. See `EngineTask.step`."""
        for _ in range(min(_BATCH_SIZE, len(self._pending_failures))):
            failure = self._pending_failures.popleft()
            try:
                self._end_subscription(failure)
            except Exception as error:  # no error may keep the others from ending
                client_name, sub_id = failure.client.client_name, failure.sub_id
                text = f"the end of subscription {sub_id!r} of client[{client_name}]"
                self._log.emit("01-0004", text=text, error=repr(error))
        return bool(self._pending_failures)

    def _end_subscription(self, failure: _Failure) -> None:
        client, sub_id, topic, error = failure
        self._pending_ids.discard((client.number, sub_id))
        message_id = _MESSAGE_IDS.get(type(error))
        problem = repr(error) if message_id is None else str(error)
        self._log.emit(
            message_id or "14-0004",
            client=client.client_name,
            sub_id=sub_id,
            topic=topic,
            error=problem,
        )
        if message_id is None:
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


def end_failed_subscriptions(subscriptions: Iterable[Subscription], error: Exception) -> None:
    """Report a failure on behalf of some subscriptions. See `SubscriptionFailures`."""
    for subscription in subscriptions:
        subscriber, topic = subscription.subscriber, subscription.selector.text
        subscriber.report_subscription_failure(subscription.sub_id, topic, error)
