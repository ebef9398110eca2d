"""A consumer of a queue on the driver, which holds the leases while micro-batches run.

Messages are leased one after the other, and each lease is renewed until its message has been
acknowledged. So no other consumer gets the messages of a batch while the driver runs, however long
the batch takes. When the driver ends its connection closes, and all leases end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from amperage.client import Client, ClientError, CommandError, Message, MessageStream, TimedOutError
from pipeline.amps.connection import NOT_FOUND, UNREACHABLE_ERRORS, RetryPause, explained, session
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed
from pipeline.errors import option_error

MAX_BATCH_ROWS: Final = 10_000
"""Messages per micro-batch, unless the user sets a limit: its offset names all of them."""
_MAX_BATCH_BYTES: Final = 8 << 20
"""Bytes of bodies per micro-batch, which are sent to the tasks."""
_MAX_COMMAND_BOOKMARKS: Final = 80
"""Bookmarks per command."""
_EMPTY_QUEUE_WAIT_S: Final = 1.0
"""Seconds without a message after which the queue is taken to be empty."""
_MIN_RENEWAL_INTERVAL_S, _MAX_RENEWAL_INTERVAL_S = 0.2, 60.0
"""Seconds between two renewals."""


class QueueConsumer:
    """Takes messages of a queue, and acknowledges them.

    Args:
        options: server, queue and filter.
        command_options: the options field of the subscription.
    """

    def __init__(self, options: AmpsOptions, command_options: str | None) -> None:
        self._options = options
        self._command_options = command_options
        self._exit_stack = ExitStack()
        self._stream: MessageStream | None = None
        self._client: Client | None = None
        self._buffered_messages: list[Message] = []
        self._acked_bookmarks: frozenset[str] = frozenset()
        self._lease_renewal = _LeaseRenewal(options.read_topic)
        self._retry_pause = RetryPause(options)

    def close(self) -> None:
        """Return all unacknowledged messages to the queue."""
        self._lease_renewal.stop()
        self._disconnect()

    def acknowledge(self, bookmarks: Collection[str]) -> None:
        """Acknowledge messages; the server has persisted that when this returns.

        Args:
            bookmarks: the bookmarks of all messages of the last micro-batch.

        Raises:
            PipelineError: the server refuses, or has been unavailable for too long.
        """
        if self._acked_bookmarks.issuperset(bookmarks):
            return
        while True:
            try:
                client = self._open_client()
                self._lease_renewal.remove(bookmarks)
                for batch in _command_batches(bookmarks):
                    client.acknowledge(self._options.read_topic, batch)
                client.flush_acks()
            except UNREACHABLE_ERRORS as error:
                self._handle_disconnect(error)
            except ClientError as error:
                raise explained(self._options, error) from None
            else:
                self._acked_bookmarks = frozenset(bookmarks)
                return

    def take_messages(
        self, max_messages: int | None, held: Collection[str], *, waits: bool
    ) -> list[Message]:
        """Return messages that have arrived, and renew their leases from now on.

        Args:
            max_messages: the maximum number.
            held: the bookmarks of messages taken before, which the server may deliver again.
            waits: whether to wait briefly for a message if there is none.

        Raises:
            PipelineError: the topic is no queue, or the server refuses or is unavailable for too
                long.
        """
        max_messages = min(max_messages or MAX_BATCH_ROWS, MAX_BATCH_ROWS)
        while True:
            try:
                return self._take_arrived(
                    max_messages,
                    {*held, *self._acked_bookmarks},
                    _EMPTY_QUEUE_WAIT_S if waits else 0.0,
                )
            except UNREACHABLE_ERRORS as error:
                self._handle_disconnect(error)
                if not waits:
                    return []
            except ClientError as error:
                raise explained(self._options, error) from None

    def _take_arrived(self, max_messages: int, held: Collection[str], wait: float) -> list[Message]:
        stream = self._open_stream(max_messages)
        deadline = time.monotonic() + wait
        while True:
            with suppress(TimedOutError):
                arrived = stream.batch(max(deadline - time.monotonic(), 0.0))
                self._lease_renewal.add(self._open_client(), arrived)
                known = {message.bookmark for message in self._buffered_messages}
                self._buffered_messages += [
                    message
                    for message in arrived
                    if message.bookmark not in held and message.bookmark not in known
                ]
                again = [
                    message.bookmark
                    for message in arrived
                    if message.bookmark in self._acked_bookmarks
                ]
                for batch in _command_batches(again):
                    self._open_client().acknowledge(self._options.read_topic, batch)
            self._retry_pause.reset()
            if self._buffered_messages or time.monotonic() >= deadline:
                break
        size = count = 0
        for message in self._buffered_messages[:max_messages]:
            size += len(message.body)
            if count and size > _MAX_BATCH_BYTES:
                break
            count += 1
        taken, self._buffered_messages = (
            self._buffered_messages[:count],
            self._buffered_messages[count:],
        )
        return taken

    def _open_client(self) -> Client:
        if self._client is None:
            self._client = self._exit_stack.enter_context(session(self._options, "consume"))
        return self._client

    def _open_stream(self, max_messages: int) -> MessageStream:
        if self._stream is None:
            options = self._options
            self._stream = self._open_client().subscribe(
                options.read_topic,
                filter=options.filter,
                options=self._command_options,
                max_backlog=max_messages,
            )
            if self._stream.backlog is None:
                raise option_error(
                    "topic", options.read_topic, "it is not a queue; consume=true requires a queue"
                )
        return self._stream

    def _disconnect(self) -> None:
        self._stream = self._client = None
        self._buffered_messages = []
        self._acked_bookmarks = frozenset()
        self._lease_renewal.clear()
        with suppress(ClientError):
            self._exit_stack.close()

    def _handle_disconnect(self, error: ClientError) -> None:
        """Disconnect, and wait before the next attempt, or give up."""
        self._disconnect()
        self._retry_pause.wait(error)


class _LeaseRenewal:
    """Renews leases on a thread of its own, because the driver may be busy with a batch.

    Args:
        queue: the queue.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._bookmarks: dict[str, None] = {}
        self._client: Client | None = None
        self._interval_s = _MAX_RENEWAL_INTERVAL_S
        self._wakeup_event = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def add(self, client: Client, messages: Iterable[Message]) -> None:
        """Renew the leases of messages from now on, if they expire."""
        for message in messages:
            until = message.header.lease_period
            if until is None or message.bookmark is None:
                continue
            with self._lock:
                self._client = client
                self._bookmarks[message.bookmark] = None
            self._interval_s = min(self._interval_s, _renewal_interval_s(until))
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_leases, daemon=True)
                self._thread.start()
        self._wakeup_event.set()

    def remove(self, bookmarks: Iterable[str]) -> None:
        """Stop renewing the leases of these messages."""
        with self._lock:
            for bookmark in bookmarks:
                self._bookmarks.pop(bookmark, None)

    def clear(self) -> None:
        """Forget all leases: they have ended with the connection."""
        with self._lock:
            self._bookmarks, self._client = {}, None

    def stop(self) -> None:
        """Stop the thread."""
        self._is_stopped = True
        self._wakeup_event.set()
        if self._thread is not None:
            self._thread.join()

    def _renew_leases(self) -> None:
        while not self._is_stopped:
            self._wakeup_event.clear()
            began = time.monotonic()
            while (
                not self._is_stopped and (left := began + self._interval_s - time.monotonic()) > 0
            ):
                self._wakeup_event.wait(left)
                self._wakeup_event.clear()
            with self._lock:
                held, client = list(self._bookmarks), self._client
            if client is None or self._is_stopped:
                continue
            with suppress(ClientError):  # `take_messages` gets the error as well, and reconnects
                for batch in _command_batches(held):
                    client.acknowledge(self._queue, batch, "extend")


def _renewal_interval_s(until: str) -> float:
    """Return the seconds between two renewals of a lease that has just begun."""
    ends = datetime.strptime(until, "%Y%m%dT%H%M%S.%f%z")
    return min(
        max((ends - datetime.now(UTC)).total_seconds() / 3, _MIN_RENEWAL_INTERVAL_S),
        _MAX_RENEWAL_INTERVAL_S,
    )


def _command_batches(bookmarks: Iterable[str | None]) -> Iterable[Sequence[str]]:
    """Yield bookmarks in batches of the size of one command."""
    rest = (bookmark for bookmark in bookmarks if bookmark is not None)
    while batch := list(islice(rest, _MAX_COMMAND_BOOKMARKS)):
        yield batch


def reread_message(
    client: Client, options: AmpsOptions, command_options: str | None, bookmark: str
) -> Message | None:
    """Read a message of a queue from the transaction log.

    Returns:
        The message, as the queue delivered it; None if the log does not have it any more.

    Raises:
        PipelineError, ClientError: the log cannot be read.
    """
    fails = ",".join(filter(None, [command_options, "bookmark_not_found=fail"]))
    try:
        span = f"[{bookmark}:{bookmark}]"
        for messages in replayed(client, options, span, command_options=fails):
            for message in messages:
                message.header.topic = options.read_topic
                return message
    except CommandError as error:
        if error.reason != NOT_FOUND:
            raise
    return None
