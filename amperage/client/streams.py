"""The common base of the blocking and the asyncio message streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress

from amperage.client.errors import ClientError, again
from amperage.client.message import Message
from amperage.client.pending_requests import StreamInbox


class BaseStream(ABC):
    """The messages of one subscription or query.

    Args:
        inbox: the inbox of the messages.
    """

    def __init__(self, inbox: StreamInbox) -> None:
        self._inbox = inbox
        self._handed_out: list[Message] = []  # and not yet marked as processed

    @property
    def id(self) -> str:
        """The subscription or query id."""
        return self._inbox.id

    @property
    def backlog(self) -> int | None:
        """The maximum number of unacknowledged queue messages; None if not from a queue."""
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
        """Mark all messages returned so far as processed; see `MessageStream.done`."""
        done, self._handed_out = self._handed_out, []
        note = self._inbox.on_done
        if note is not None:
            for message in done:
                if message.bookmark is not None:
                    note(message.bookmark)
        if self._inbox.ack_rules.is_automatic:
            with suppress(ClientError):  # the stream ends with the same error
                for message in done:
                    message.ack()

    def _take(self) -> Message | None:
        """Return the next message, or None if there is none."""
        inbox = self._inbox
        while True:
            try:
                message = inbox.messages.popleft()
            except IndexError:  # it is empty, or another thread has just taken the last one
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
        """Report the outcome of a queue message; see `Commands.settle`."""

    def _is_over(self) -> bool:
        """Return whether the stream has ended and all messages have been taken.

        Raises:
            ClientError: the stream has ended with an error.
        """
        inbox = self._inbox
        if not inbox.ended or inbox.messages:
            return False
        if inbox.error is not None:
            raise again(inbox.error)
        return True
