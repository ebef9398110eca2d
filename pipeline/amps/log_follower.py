"""Follows the transaction log on the driver, to plan the next micro-batch.

One bookmark subscription stays open as long as the stream runs. Getting the latest offset takes the
messages that have arrived, at no more cost than reading a socket. The server sends no faster than
the driver reads.

At another server a stream resumes after the last messages that it has read, if they are contiguous
there, in any order. That is checked first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from amperage.client import NOW, Client, ClientError, Message, MessageStream, TimedOutError
from amperage.client.block_client import BlockClient
from pipeline.amps.connection import UNREACHABLE_ERRORS, RetryPause, explained, require_log, session
from pipeline.amps.log_measure import LogMeasure, measure
from pipeline.amps.offsets import LastMessages, MessageEnd, digest_of
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed
from pipeline.errors import PipelineError

_MIN_COMPARED_MESSAGES: Final = 1000
"""Messages (up to twice as many) that must be contiguous at another server."""
_REPLAY_WAIT_S: Final = 1.0
"""Seconds to wait for a replay in progress, before Spark is told that there is nothing yet."""


class LogFollower:
    """A position in the transaction log that advances.

    Args:
        options: server, topic and filter.
        command_options: the options field of the subscription.
    """

    def __init__(self, options: AmpsOptions, command_options: str | None) -> None:
        self._options = options
        self._command_options = command_options
        self._stops_at_end = False
        self._exit_stack = ExitStack()
        self._client: BlockClient | None = None
        self._measuring_client: Client | None = None
        self._stream: MessageStream | None = None
        self._bookmark: str | None = None
        self._unread_messages: list[Message] = []
        self._last_messages = LastMessages(_MIN_COMPARED_MESSAGES)
        self._is_replay_complete = False
        self._retry_pause = RetryPause(options)

    def stop_at_end(self) -> None:
        """Stop at the end that the log has at the next subscription."""
        self.close()
        self._stops_at_end = True

    def close(self) -> None:
        """End the subscription."""
        self._client = self._measuring_client = self._stream = self._bookmark = None
        self._unread_messages = []
        self._exit_stack.close()

    @property
    def read_end(self) -> MessageEnd | None:
        """The end of the messages read, if the stream may resume at another server."""
        return None if len(self._options.servers) == 1 else self._last_messages.end

    @property
    def is_at_end(self) -> bool:
        """True if all messages sent by the server have been taken, and it had no more."""
        return self._stream is not None and self._is_replay_complete and not self._unread_messages

    def measure_backlog(self) -> LogMeasure | None:
        """Return the amount that the server has after the messages taken; None if it is unknown.

        The request uses a connection of its own: on the other one the answer would arrive after all
        messages that have not been taken.
        """
        if self._client is None or self._client.server is None:
            return None
        try:
            if self._measuring_client is None:
                options_for_server = replace(self._options, servers=(self._client.server,))
                self._measuring_client = self._exit_stack.enter_context(
                    session(options_for_server, "ask")
                )
            return measure(
                self._measuring_client,
                self._options,
                f"({self._bookmark}:{NOW}]",
                command_options=self._command_options or "",
                is_filtered=False,
            )
        except ClientError:
            self._measuring_client = None
            return None

    def read_messages(
        self, place: str, max_messages: int | None, read: MessageEnd | None = None
    ) -> Iterator[list[Message]]:
        """Yield the messages that have arrived after a bookmark.

        Args:
            place: the bookmark.
            max_messages: the maximum number of messages; None for all.
            read: the end of the messages read up to there, if known.

        Returns:
            The messages; none while the server is unavailable, unless the log is read to its end.

        Raises:
            PipelineError: the server refuses, or has been unavailable for too long.
        """
        yielded = 0
        while max_messages is None or yielded < max_messages:
            try:
                messages = self._next_messages(
                    place, None if max_messages is None else max_messages - yielded, read
                )
                self._retry_pause.reset()
            except UNREACHABLE_ERRORS as error:
                self._handle_disconnect(error)
                if self._stops_at_end:
                    continue
                return
            except ClientError as error:
                raise explained(self._options, error, place) from None
            if not messages:
                return
            yielded += len(messages)
            place = self._bookmark = messages[-1].bookmark or place
            if len(self._options.servers) > 1:
                self._last_messages.add([message.bookmark or "" for message in messages])
            read = self.read_end
            yield messages

    def _next_messages(
        self, place: str, max_messages: int | None, read: MessageEnd | None
    ) -> list[Message]:
        if self._stream is None or self._bookmark != place:
            self._stream = self._subscribe(place, read)
        while not self._unread_messages:
            try:
                arrived = self._stream.batch(0.0 if self._is_replay_complete else _REPLAY_WAIT_S)
            except TimedOutError:
                if self._stops_at_end and not self._is_replay_complete:
                    continue
                return []
            self._unread_messages = [message for message in arrived if message.command != "ack"]
            if len(self._unread_messages) < len(arrived):
                self._is_replay_complete = True
        taken = self._unread_messages[:max_messages]
        self._unread_messages = self._unread_messages[len(taken) :]
        return taken

    def _subscribe(self, place: str, read: MessageEnd | None) -> MessageStream:
        self.close()
        options = self._options
        client = self._client = self._exit_stack.enter_context(session(options, "follow"))
        require_log(client, options.read_topic)
        self._last_messages.reset(
            () if read is None else self._verify_last_messages(client, place, read)
        )
        self._bookmark, self._is_replay_complete = place, False
        place = self._last_messages.last or place
        return client.subscribe(
            options.read_topic,
            filter=options.filter,
            options=self._command_options,
            bookmark=_up_to_now(place) if self._stops_at_end else place,
            acks=("completed",),
        )

    def _verify_last_messages(self, client: Client, place: str, read: MessageEnd) -> list[str]:
        """Check that this server has the last messages read contiguously; return their bookmarks.

        The last of them may be another one than at the previous server.

        Raises:
            PipelineError: it has not.
            ClientError: the log cannot be read.
        """
        options = self._options
        if not options.fail_on_data_loss:
            return []
        span = f"[{read.first}:{NOW}]"
        replay = replayed(
            client, options, span, command_options=self._command_options, top_n=read.rows
        )
        bookmarks = [message.bookmark or "" for messages in replay for message in messages]
        if (len(bookmarks), digest_of(bookmarks)) != (read.rows, read.digest):
            raise PipelineError(
                f"server {options.server}: this instance does not have the last {read.rows}"
                f" messages of {options.read_topic!r} that this stream has read up to {place}"
                " as a contiguous sequence: several publishers were connected to different"
                " instances, or journal files have been removed; some messages would be lost or"
                " read twice. Resume at the instance where they were read (the first reachable"
                " one of the option server is used), or here with the option"
                " fail_on_data_loss=false"
            )
        return bookmarks

    def _handle_disconnect(self, error: ClientError) -> None:
        """Close, and wait before the next attempt, or give up."""
        self.close()
        self._retry_pause.wait(error)


def _up_to_now(place: str) -> str:
    """Return the range from a place to the current end of the log: a time includes itself."""
    return f"{'(' if '|' in place else '['}{place}:{NOW}]"
