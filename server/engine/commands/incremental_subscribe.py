"""Attaches subscriptions to regular expressions in steps, where there are very many topics.

A subscription is attached to some topics at a time, and other tasks run in between. The rest
of the command is executed in one step when only the topics with records and the queues are left, so
that a query and the changes after it are consistent. Messages for the client that arrive meanwhile
are sent after the answer to the command.

A replacement is attached in one step: it is atomic (AMPS User Guide, Replacing Subscriptions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine.commands.errors import CommandRefusedError
from server.expressions.regex.budget import TooCostlyError

if TYPE_CHECKING:
    from collections.abc import Generator

    from server.engine.session import Session
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.topic_table import TopicTable


def attach_in_steps(
    session: Session, subscription: Subscription, deferred_frames: list[bytes]
) -> Generator[bool, None, None]:
    """Attach a subscription that is about to be placed, if that takes long.

    Args:
        session: the session that owns the subscription.
        subscription: the subscription.
        deferred_frames: receives the frames to send after the command's answer.

    Raises:
        CommandRefusedError: matching its pattern to topics takes too many steps.
    """
    is_new = subscription.sub_id not in session.subscriptions
    if not (is_new and subscription.selector.is_regex and subscription.replay is None):
        return
    topics = session.engine.topics
    reservation = session.outbox.reserve()
    is_done = False
    try:
        for _ in topics.attach_in_steps(subscription):
            yield True
        is_done = True
    except TooCostlyError as error:
        raise CommandRefusedError("bad regex topic", str(error)) from None
    finally:
        deferred_frames += reservation.withdraw()
        if not is_done:
            session.engine.scheduler.start_task(
                _DetachTask(session.client_name, topics, subscription)
            )


class _DetachTask:
    """Detaches a subscription that was attached to some topics but will not be placed.

    Args:
        client_name: the name of its client.
        topics: the topics.
        subscription: the subscription.
    """

    def __init__(self, client_name: str, topics: TopicTable, subscription: Subscription) -> None:
        self._client_name = client_name
        self._topics = topics
        self._subscription = subscription

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return self._client_name, "subscribe"

    def step(self) -> bool:
        """See `EngineTask.step`."""
        if self._topics.detach_batch(self._subscription):
            return True
        self._topics.unsubscribe(self._subscription)
        return False
