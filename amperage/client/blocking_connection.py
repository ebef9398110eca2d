"""One connection of a blocking client, with one reading thread and any number of writing threads.

A thread passes its command to the protocol and writes it itself, as far as the socket accepts it.
The reading thread runs `run_until`: it reads, answers heartbeats, and writes the remaining output.
It stops reading while streams buffer too many messages (`amperage.client.backpressure`), unless a
command waits for its answer, which arrives after those messages. It sends heartbeats meanwhile.
For a client that only publishes, it reads the acknowledgements of some milliseconds in one batch,
unless a call waits for one: waking a thread for each would cost more than the messages.

The client's lock protects every use of the socket except polling, because the two directions of a
TLS connection share state.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from amperage.client.backpressure import StreamBacklog
from amperage.client.channels import Channel, channel_for
from amperage.client.errors import (
    ClientError,
    NotConnectedError,
    TimedOutError,
    copy_error,
)
from amperage.client.limits import MAX_MISSED_HEARTBEATS
from amperage.client.protocol import ClientProtocol
from amperage.client.sockets import open_socket, premature_end_error
from amperage.client.state_lock import ClientLock
from amperage.client.uri import ServerUri

_READ_SIZE: Final = 128 * 1024
_MAX_POLL_S: Final = 3600.0
"""Maximum seconds of a poll. Events end it early, so shorter polls would have no benefit."""
_WRITE_POLL_S: Final = 1.0
"""Seconds between checks for the end of the connection, in a thread that waits to write."""
_READ_BATCH_PAUSE_S: Final = 0.005
"""Seconds between reads while no thread waits, so that acknowledgements are read in batches."""
_PAUSED_READ_CHECK_S: Final = 0.05
"""Seconds between checks, while reading is paused, for messages taken from streams."""
_STARVED_WARNING_S: Final = 2.0
"""Seconds before a warning about a stream that waits while other streams are full."""

_log: Final = logging.getLogger("amperage.client")


class BlockingConnection:
    """Connects a protocol to a socket.

    Args:
        protocol: the protocol of the connection.
        uri: the server.
        guard: the client's lock.
        timeout: seconds to wait for the connection.
        ssl_context: for tcps and wss.

    Raises:
        ConnectError: the connection cannot be established.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        uri: ServerUri,
        guard: ClientLock,
        timeout: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._protocol = protocol
        self._guard = guard
        self._socket = open_socket(uri, timeout, ssl_context)
        self._wakeup_sender, self._wakeup_receiver = socket.socketpair()
        self._wakeup_sender.setblocking(False)
        self._wakeup_receiver.setblocking(False)
        self._channel: Channel | None = channel_for(uri)
        self._encoded_output = bytearray()
        self._sent_bytes = 0
        self._backlog = StreamBacklog()
        self._last_received_s = self._last_heartbeat_s = time.monotonic()
        self._silence_timeout_s: float | None = None
        # When a stream began to wait while others are full.
        self._starved_since_s: float | None = None
        self._is_end_requested = False
        self._is_batching_reads = False
        self._poll_ends_s = float("inf")  # the end of the current poll; events end it earlier
        self._is_ended = False
        self._end_error: ClientError | None = None
        guard.on_wait = self._wake_paused_reader
        if self._channel is not None:
            self._open_channel(self._channel, uri, timeout)

    # For the reading thread

    def run_until(
        self, arrived: Callable[[], bool], timeout: float | None = None, what: str = ""
    ) -> None:
        """Read and write until a condition is met.

        Args:
            arrived: the condition.
            timeout: seconds; None for no limit.
            what: the name of the expected event, for the error.

        Raises:
            TimedOutError: the condition was not met in time.
            ConnectionLostError: the connection has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        calls = self._protocol.handler_calls
        while True:
            with self._guard.exclusive_first():
                if arrived():
                    return
                if self._is_end_requested:
                    self._end(None)
                if self._is_ended:
                    raise self._end_reason_error()
                self._send_due_acks()
                self._write_socket()
                self._read_socket()
                has_calls = bool(calls)
                if not has_calls:
                    self._guard.wake()
                    if arrived():
                        return
                    pause = self._poll_timeout_s(deadline)
                    descriptor, events = self._socket.fileno(), self._poll_events()
            if has_calls:
                calls.call_all()
            elif pause > 0:
                self._poll(descriptor, events, pause)
            elif deadline is not None and time.monotonic() >= deadline:
                raise TimedOutError(f"{what} did not come within {timeout:g} seconds")

    def close_sockets(self) -> None:
        """Close the socket. The reading thread calls this last."""
        with self._guard.exclusive():
            self._end(None)
            self._socket.close()
            self._wakeup_sender.close()
            self._wakeup_receiver.close()

    # For any thread that holds the lock

    def write_output(self) -> int:
        """Write as much output as the socket accepts.

        Returns:
            The output position to pass to `wait_until_written`; 0 if everything has been written.
        """
        self._write_socket()
        due = self._protocol.acks_due
        if due is not None and due < self._poll_ends_s:
            self._wake_up()
        pending = self._pending_output()
        return self._sent_bytes + len(pending) if pending else 0

    def end(self, error: ClientError | None) -> None:
        """End the connection.

        Args:
            error: the reason; None if the client closes it. Later reasons are ignored.
        """
        self._end(error)
        self._wake_up()

    def set_silence_timeout(self, allowed: float) -> None:
        """Start to end the connection after `allowed` seconds without received bytes."""
        self._last_received_s = time.monotonic()
        self._silence_timeout_s = allowed
        self._wake_up()

    def abandon_after_fork(self) -> None:
        """Close the sockets in a forked child process; the connection stays with the parent."""
        self._is_ended = True
        self._protocol.close(
            NotConnectedError("the connection belongs to the process that forked this one")
        )
        for owned_socket in (self._socket, self._wakeup_sender, self._wakeup_receiver):
            owned_socket.close()

    # For any thread that does not hold the lock

    def request_end(self) -> None:
        """End the connection soon, because its client was garbage-collected.

        The garbage collector can call this in any thread at any time, so this takes no lock.
        """
        self._is_end_requested = True
        self._wake_up()

    def wait_until_written(self, position: int, timeout: float) -> None:
        """Wait until all output up to a position has been written; see `write_output`.

        Raises:
            TimedOutError: the server did not read in time.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._guard.exclusive():
                if self._is_ended or self._sent_bytes >= position:
                    return
                self._write_socket()
                if self._is_ended or self._sent_bytes >= position:
                    return
                left = deadline - time.monotonic()
                if left <= 0 or self._guard.is_reader_thread:
                    self._wake_up()  # the reading thread writes the rest
                    break
                descriptor = self._socket.fileno()
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            try:
                poll.poll(int(min(left, _WRITE_POLL_S) * 1000) + 1)
            except BaseException:
                self._wake_up()
                raise
        if left <= 0:
            raise TimedOutError(f"room to write did not come within {timeout:g} seconds")

    # Reading

    def _read_socket(self) -> None:
        self._is_batching_reads = False
        if self._is_reading_paused():
            self._send_keepalive()
            return
        try:
            data = self._socket.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._end_as_lost(f"the connection ended: {error.strerror or error}")
            return
        if not data:
            self._end_as_lost("the server closed the connection")
            return
        self._last_received_s = time.monotonic()
        self._protocol.traffic.bytes_received += len(data)
        try:
            self._process_input(data)
        except ClientError as error:
            self._end(error)
            return
        self._protocol.end_slow_streams()
        self._backlog.adjust(self._protocol.queued_messages, len(data))
        self._write_socket()
        has_all = len(data) < _READ_SIZE
        has_no_waiters = not self._protocol.has_inboxes and not self._guard.has_waiters
        self._is_batching_reads = has_all and has_no_waiters

    def _process_input(self, data: bytes) -> None:
        if self._channel is None:
            self._protocol.receive(data)
            return
        for decoded in self._channel.decode(data):
            self._protocol.receive(decoded)

    def _wake_paused_reader(self) -> None:
        """Wake the reading thread, if it pauses, when another thread begins to wait."""
        if self._backlog.is_over_limit or self._is_batching_reads:
            self._wake_up()

    def _is_reading_paused(self) -> bool:
        if not self._backlog.is_over_limit:
            return False
        self._backlog.adjust(self._protocol.queued_messages)
        return self._backlog.is_over_limit and not self._guard.urgent_count

    def _send_keepalive(self) -> None:
        """Send heartbeats while reading is paused, and warn if a stream waits for long."""
        now = time.monotonic()
        self._last_received_s = now  # the server is not silent: we do not read
        allowed = self._silence_timeout_s
        if allowed is not None and now - self._last_heartbeat_s >= allowed / MAX_MISSED_HEARTBEATS:
            self._last_heartbeat_s = now
            self._protocol.send_heartbeat()
            self._write_socket()
        if not self._guard.has_waiters:
            self._starved_since_s = None
        elif self._starved_since_s is None:
            self._starved_since_s = now
        elif now - self._starved_since_s > _STARVED_WARNING_S:
            self._starved_since_s = float("inf")
            _log.warning(
                "a stream is starved: nothing is read from the server while %d messages wait in"
                " other streams; read these, or unsubscribe",
                self._protocol.queued_messages,
            )

    # Writing

    def _send_due_acks(self) -> None:
        """Send a batch of acknowledgements of queue messages when its delay has passed."""
        due = self._protocol.acks_due
        if due is not None and time.monotonic() >= due:
            self._protocol.send_acks()

    def _write_socket(self) -> None:
        pending = self._pending_output()
        while pending and not self._is_ended:
            try:
                sent = self._socket.send(pending)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self._end_as_lost(f"the connection ended: {error.strerror or error}")
                return
            del pending[:sent]
            self._protocol.traffic.bytes_sent += sent
            self._sent_bytes += sent

    def _pending_output(self) -> bytearray:
        """Return the output not yet sent, encoded for the socket."""
        output, channel = self._protocol.output, self._channel
        if channel is None:
            return output
        if output and channel.is_open:
            self._encoded_output += channel.encode(bytes(output))
            output.clear()
        self._encoded_output += channel.take_replies()
        return self._encoded_output

    # Waiting and ending

    def _poll_timeout_s(self, deadline: float | None) -> float:
        """Return how many seconds to poll the socket; 0 if there is something to do at once."""
        if self._is_ended or self._has_decrypted_input():
            return 0.0
        now = time.monotonic()
        ends = [_MAX_POLL_S]
        if deadline is not None:
            ends.append(deadline - now)
        if self._is_reading_paused():
            ends.append(_PAUSED_READ_CHECK_S)
        elif self._is_batching_reads:
            ends.append(_READ_BATCH_PAUSE_S)
        elif self._silence_timeout_s is not None:
            silent_until = self._last_received_s + self._silence_timeout_s
            if now >= silent_until:
                self._end_as_lost(f"the server was silent for {self._silence_timeout_s:g} seconds")
            ends.append(silent_until - now)
        if self._protocol.acks_due is not None:
            ends.append(self._protocol.acks_due - now)
        pause = max(0.0, min(ends))
        self._poll_ends_s = now + pause
        return pause

    def _has_decrypted_input(self) -> bool:
        """Return whether TLS has decrypted bytes that are not read, which a poll does not show."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _poll_events(self) -> int:
        events = 0 if self._is_batching_reads or self._is_reading_paused() else select.POLLIN
        return events | (select.POLLOUT if self._pending_output() else 0)

    def _poll(self, descriptor: int, events: int, pause: float) -> None:
        poll = select.poll()
        if events:
            poll.register(descriptor, events)
        poll.register(self._wakeup_receiver.fileno(), select.POLLIN)
        ready = dict(poll.poll(int(pause * 1000) + 1))
        if self._wakeup_receiver.fileno() in ready:
            with suppress(BlockingIOError):
                self._wakeup_receiver.recv(4096)

    def _wake_up(self) -> None:
        with suppress(OSError):
            self._wakeup_sender.send(b"\0")

    def _end(self, error: ClientError | None) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self._end_error = error
        self._protocol.close(error)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._guard.wake()

    def _end_as_lost(self, cause: str) -> None:
        self._end(self._protocol.connection_lost_error(cause))

    def _end_reason_error(self) -> ClientError:
        if self._end_error is None:
            return NotConnectedError("the client is closed")
        return copy_error(self._end_error)

    def _open_channel(self, channel: Channel, uri: ServerUri, timeout: float) -> None:
        self._encoded_output += channel.open()
        try:
            self.run_until(lambda: channel.is_open, timeout, "its answer")
        except ClientError as error:
            failure = premature_end_error(uri, error)
            with self._guard.exclusive():
                self._end(failure)
            self.close_sockets()
            raise failure from None
