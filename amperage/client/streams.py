"""What both shells' streams of messages have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress

from amperage.client.errors import ClientError, again
from amperage.client.message import Message
from amperage.client.pending import Inbox


class Stream(ABC):
    """The messages of one subscription or query.

    Args:
        inbox: where they arrive.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._handed_out: list[Message] = []  # that are not done

    @property
    def id(self) -> str:
        """The subscription or query id."""
        return self._inbox.id

    @property
    def backlog(self) -> int | None:
        """How many messages of queues may be held at a time; None for no subscription to queues."""
        return self._inbox.backlog

    def __repr__(self) -> str:
        opening = self._inbox.opened_by
        what = f" {opening.describe()}" if opening is not None else ""
        state = "ended" if self._inbox.ended else "open"
        waiting = len(self._inbox.messages)
        return f"<{type(self).__name__} {self.id}:{what}, {state}, {waiting} waiting>"

    def _has_news(self) -> bool:
        return bool(self._inbox.messages) or self._inbox.ended

    def _note_done(self) -> None:
        """Mark all messages handed out so far as processed; see `MessageStream.done`."""
        done, self._handed_out = self._handed_out, []
        note = self._inbox.on_done
        if note is not None:
            for message in done:
                if message.bookmark is not None:
                    note(message.bookmark)
        if self._inbox.ack_rules.is_automatic:
            with suppress(ClientError):  # the stream ends with it
                for message in done:
                    message.ack()

    def _take(self) -> Message | None:
        """The next message, if there is one."""
        inbox = self._inbox
        while True:
            try:
                message = inbox.messages.popleft()
            except IndexError:  # nothing there, or another thread has just taken it
                return None
            if message.header.lease_period is None or inbox.redelivery.is_worth_taking(message):
                break
        if inbox.leases(message):
            message._settle = self._settle  # noqa: SLF001 - for streams, see `Message`
            message._is_done = inbox.redelivery.is_done  # noqa: SLF001
            if inbox.ack_rules.is_automatic:
                self._handed_out.append(message)
        elif inbox.on_done is not None and message.bookmark is not None:
            self._handed_out.append(message)
        return message

    @abstractmethod
    def _settle(self, message: Message, options: str | None) -> None:
        """Tell a queue what became of a message."""

    def _is_over(self) -> bool:
        """Whether the stream has ended, and everything has been taken.

        Raises:
            ClientError: it has ended other than as wished.
        """
        inbox = self._inbox
        if not inbox.ended or inbox.messages:
            return False
        if inbox.error is not None:
            raise again(inbox.error)
        return True
