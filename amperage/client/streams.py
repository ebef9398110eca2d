"""The common base of the blocking and the asyncio message streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress

from amperage.client.errors import ClientError, copy_error
from amperage.client.message import Message
from amperage.client.pending_requests import StreamInbox
from amperage.client.serialization import Decode


class BaseStream(ABC):
    """The messages of one subscription or query.

    Args:
        inbox: the inbox of the messages.
        decode: decodes the bodies; None leaves them as they are.
    """

    def __init__(self, inbox: StreamInbox, decode: Decode | None = None) -> None:
        self._inbox = inbox
        self._decode = decode
        self._unprocessed_messages: list[Message] = []  # and not yet marked as processed

    @property
    def id(self) -> str:
        """The subscription or query id."""
        return self._inbox.id

    @property
    def backlog(self) -> int | None:
        """The maximum number of unacknowledged queue messages; None if not from a queue."""
        return self._inbox.backlog

    def __repr__(self) -> str:
        opening = self._inbox.opening_request
        what = f" {opening.describe()}" if opening is not None else ""
        state = "ended" if self._inbox.is_ended else "open"
        waiting = len(self._inbox.messages)
        return f"<{type(self).__name__} {self.id}:{what}, {state}, {waiting} waiting>"

    def _has_message_or_ended(self) -> bool:
        return bool(self._inbox.messages) or self._inbox.is_ended

    def _mark_processed(self) -> None:
        """Mark all messages returned so far as processed; see `MessageStream.done`."""
        done, self._unprocessed_messages = self._unprocessed_messages, []
        note = self._inbox.on_done
        if note is not None:
            for message in done:
                if message.bookmark is not None:
                    note(message.bookmark)
        if self._inbox.ack_rules.is_automatic:
            with suppress(ClientError):  # the stream ends with the same error
                for message in done:
                    message.ack()

    def _take_message(self) -> Message | None:
        """Return the next message, or None if there is none."""
        inbox = self._inbox
        while True:
            try:
                message = inbox.messages.popleft()
            except IndexError:  # it is empty, or another thread has just taken the last one
                return None
            if message.header.lease_period is None or inbox.redelivery.take_if_newest(message):
                break
        if self._decode is not None:
            # A copy: other streams of the message may have other decoders.
            message = Message(message.header, message.body)
            message._decode = self._decode  # noqa: SLF001 - for streams, see `Message`
        if inbox.is_leased(message):
            message._report_outcome = self._settle_message  # noqa: SLF001 - for streams, see `Message`
            message._is_settled_elsewhere = inbox.redelivery.is_settled  # noqa: SLF001 - as above
            if inbox.ack_rules.is_automatic:
                self._unprocessed_messages.append(message)
        elif inbox.on_done is not None and message.bookmark is not None:
            self._unprocessed_messages.append(message)
        return message

    @abstractmethod
    def _settle_message(self, message: Message, options: str | None) -> None:
        """Report the outcome of a queue message; see `Commands.settle_message`."""

    def _is_exhausted(self) -> bool:
        """Return whether the stream has ended and all messages have been taken.

        Raises:
            ClientError: the stream has ended with an error.
        """
        inbox = self._inbox
        if not inbox.is_ended or inbox.messages:
            return False
        if inbox.error is not None:
            raise copy_error(inbox.error)
        return True
