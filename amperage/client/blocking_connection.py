"""One connection of a blocking client: the thread that reads it, and the threads that write.

A thread gives its command to the protocol and writes it itself, as far as the socket takes it. One
thread `pump`s: it reads, answers heartbeats, and writes what others could not. It stops reading
while too much waits to be taken from streams (`amperage.client.backpressure`), unless a command
waits for its answer, which stands behind those messages; it sends heartbeats none the less. For a
client that only publishes, it reads the acknowledgements of some milliseconds at once, as long as
no call waits for one: to wake a thread for each would cost more than the messages.

Every use of the socket but polling is under the client's lock: the two directions of a TLS
connection share state.
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

from amperage.client.backpressure import Backlog
from amperage.client.channels import Channel, channel_for
from amperage.client.errors import (
    ClientError,
    NotConnectedError,
    TimedOutError,
    again,
)
from amperage.client.guard import Guard
from amperage.client.limits import HEARTBEATS_MISSED
from amperage.client.protocol import ClientProtocol
from amperage.client.sockets import no_connection, open_socket
from amperage.client.uri import ServerUri

_READ_SIZE: Final = 128 * 1024
_LONGEST_PAUSE: Final = 3600.0
"""Seconds; there is no reason to look more often when nothing happens."""
_LONGEST_WRITE: Final = 1.0
"""Seconds after which a thread that waits for room looks whether the connection has ended."""
_DOZE: Final = 0.005
"""Seconds between reads while no thread waits, so that acknowledgements are read in batches."""
_HELD_BACK_PAUSE: Final = 0.05
"""Seconds after which it is looked whether messages have been taken."""
_PATIENCE: Final = 2.0
"""Seconds before it is logged that a stream waits for others to be read."""

_log: Final = logging.getLogger("amperage.client")


class BlockingConnection:
    """Joins a protocol to a socket.

    Args:
        protocol: what the connection speaks.
        uri: the server.
        guard: the client's lock.
        timeout: seconds for connecting.
        ssl_context: for tcps and wss.

    Raises:
        ConnectError: there is no connection to be had.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        uri: ServerUri,
        guard: Guard,
        timeout: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._protocol = protocol
        self._guard = guard
        self._socket = open_socket(uri, timeout, ssl_context)
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        guard.on_wait = self._listen
        self._channel: Channel | None = channel_for(uri)
        self._encoded = bytearray()
        self._sent = 0
        self._backlog = Backlog()
        self._heard = self._beaten = time.monotonic()
        self._silence_allowed: float | None = None
        self._starved: float | None = None  # since when a stream waits while others are full
        self._is_forgotten = False
        self._is_dozing = False
        self._asleep_until = float("inf")  # unless something happens
        self._ended = False
        self._failure: ClientError | None = None
        if self._channel is not None:
            self._open_channel(self._channel, uri, timeout)

    # For the thread that reads

    def pump(
        self, arrived: Callable[[], bool], timeout: float | None = None, what: str = ""
    ) -> None:
        """Read and write until something has arrived.

        Args:
            arrived: whether it has.
            timeout: seconds; None for as long as it takes.
            what: what is waited for, for the error.

        Raises:
            TimedOutError: it has not arrived in time.
            ConnectionLostError: the connection has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        numbering = self._protocol.numbering
        refusals = None if numbering is None else numbering.refusal_calls
        while True:
            with self._guard.first_turn():
                if arrived():
                    return
                if self._is_forgotten:
                    self._end(None)
                if self._ended:
                    raise self._end_reason()
                self._send_acks()
                self._send_some()
                self._receive_some()
                has_refusals = bool(refusals)
                if not has_refusals:
                    self._guard.wake()
                    if arrived():
                        return
                    pause = self._pause(deadline)
                    descriptor, events = self._socket.fileno(), self._events()
            if refusals is not None and has_refusals:
                refusals.make_all()
            elif pause > 0:
                self._poll(descriptor, events, pause)
            elif deadline is not None and time.monotonic() >= deadline:
                raise TimedOutError(f"{what} did not come within {timeout:g} seconds")

    def release(self) -> None:
        """Close the socket, once nobody reads any more."""
        with self._guard.turn():
            self._end(None)
            self._socket.close()
            self._waking.close()
            self._woken.close()

    # For any thread, holding the lock

    def send_some(self) -> int:
        """Write what can be written at once.

        Returns:
            What `wait_for_room` is to wait for; 0 if everything has been written.
        """
        self._send_some()
        due = self._protocol.acks_due
        if due is not None and due < self._asleep_until:
            self._wake_up()
        pending = self._pending()
        return self._sent + len(pending) if pending else 0

    def end(self, error: ClientError | None) -> None:
        """End the connection.

        Args:
            error: why; None if the client wants it so. The first reason counts.
        """
        self._end(error)
        self._wake_up()

    def notice_silence(self, allowed: float) -> None:
        """From now on, end the connection when nothing has come for so many seconds."""
        self._heard = time.monotonic()
        self._silence_allowed = allowed
        self._wake_up()

    def abandon(self) -> None:
        """Leave the connection to the process that this one is a fork of."""
        self._ended = True
        self._protocol.close(
            NotConnectedError("the connection belongs to the process that forked this one")
        )
        for its in (self._socket, self._waking, self._woken):
            its.close()

    # For any thread, without the lock

    def forget(self) -> None:
        """End the connection soon, since its client was garbage-collected.

        The garbage collector calls this wherever it is, so it waits for no lock.
        """
        self._is_forgotten = True
        self._wake_up()

    def wait_for_room(self, mark: int, timeout: float) -> None:
        """Wait until everything up to a mark has been written; see `send_some`.

        Raises:
            TimedOutError: the server did not read in time.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._guard.turn():
                if self._ended or self._sent >= mark:
                    return
                self._send_some()
                if self._ended or self._sent >= mark:
                    return
                left = deadline - time.monotonic()
                if left <= 0 or self._guard.is_read_here:
                    self._wake_up()  # the thread that reads writes the rest
                    break
                descriptor = self._socket.fileno()
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            try:
                poll.poll(int(min(left, _LONGEST_WRITE) * 1000) + 1)
            except BaseException:
                self._wake_up()
                raise
        if left <= 0:
            raise TimedOutError(f"room to write did not come within {timeout:g} seconds")

    # Reading

    def _receive_some(self) -> None:
        self._is_dozing = False
        if self._is_held_back():
            self._show_life()
            return
        try:
            data = self._socket.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._lose(f"the connection ended: {error.strerror or error}")
            return
        if not data:
            self._lose("the server closed the connection")
            return
        self._heard = time.monotonic()
        try:
            self._take(data)
        except ClientError as error:
            self._end(error)
            return
        self._backlog.adjust(self._protocol.queued, len(data))
        self._send_some()
        has_all = len(data) < _READ_SIZE
        nobody_waits = not self._protocol.has_inboxes and not self._guard.is_waited_for
        self._is_dozing = has_all and nobody_waits

    def _take(self, data: bytes) -> None:
        if self._channel is None:
            self._protocol.receive(data)
            return
        for piece in self._channel.decode(data):
            self._protocol.receive(piece)

    def _listen(self) -> None:
        """Wake the reading thread for a thread that begins to wait, if it had paused."""
        if self._backlog.is_over or self._is_dozing:
            self._wake_up()

    def _is_held_back(self) -> bool:
        if not self._backlog.is_over:
            return False
        self._backlog.adjust(self._protocol.queued)
        return self._backlog.is_over and not self._guard.urgent

    def _show_life(self) -> None:
        """Beat while the server's beats are not read."""
        now = time.monotonic()
        self._heard = now  # it is us who do not listen
        allowed = self._silence_allowed
        if allowed is not None and now - self._beaten >= allowed / HEARTBEATS_MISSED:
            self._beaten = now
            self._protocol.beat()
            self._send_some()
        if not self._guard.is_waited_for:
            self._starved = None
        elif self._starved is None:
            self._starved = now
        elif now - self._starved > _PATIENCE:
            self._starved = float("inf")
            _log.warning(
                "a stream waits for messages, but the server is not read: %d messages wait in"
                " streams that nobody iterates; take them, or unsubscribe",
                self._protocol.queued,
            )

    # Writing

    def _send_acks(self) -> None:
        """Send acknowledgements of queue messages that have waited long enough for others."""
        due = self._protocol.acks_due
        if due is not None and time.monotonic() >= due:
            self._protocol.send_acks()

    def _send_some(self) -> None:
        pending = self._pending()
        while pending and not self._ended:
            try:
                sent = self._socket.send(pending)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self._lose(f"the connection ended: {error.strerror or error}")
                return
            del pending[:sent]
            self._sent += sent

    def _pending(self) -> bytearray:
        """What waits to be sent, as it goes to the socket."""
        output, channel = self._protocol.output, self._channel
        if channel is None:
            return output
        if output and channel.is_open:
            self._encoded += channel.encode(bytes(output))
            output.clear()
        self._encoded += channel.take_replies()
        return self._encoded

    # Waiting and ending

    def _pause(self, deadline: float | None) -> float:
        """How long to wait for the socket, in seconds; 0 if there is something to do at once."""
        if self._ended or self._has_unread():
            return 0.0
        now = time.monotonic()
        ends = [_LONGEST_PAUSE]
        if deadline is not None:
            ends.append(deadline - now)
        if self._is_held_back():
            ends.append(_HELD_BACK_PAUSE)
        elif self._is_dozing:
            ends.append(_DOZE)
        elif self._silence_allowed is not None:
            silent_until = self._heard + self._silence_allowed
            if now >= silent_until:
                self._lose(f"the server was silent for {self._silence_allowed:g} seconds")
            ends.append(silent_until - now)
        if self._protocol.acks_due is not None:
            ends.append(self._protocol.acks_due - now)
        pause = max(0.0, min(ends))
        self._asleep_until = now + pause
        return pause

    def _has_unread(self) -> bool:
        """Whether TLS has decrypted more than was read, which no poll tells of."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _events(self) -> int:
        events = 0 if self._is_dozing or self._is_held_back() else select.POLLIN
        return events | (select.POLLOUT if self._pending() else 0)

    def _poll(self, descriptor: int, events: int, pause: float) -> None:
        poll = select.poll()
        if events:
            poll.register(descriptor, events)
        poll.register(self._woken.fileno(), select.POLLIN)
        ready = dict(poll.poll(int(pause * 1000) + 1))
        if self._woken.fileno() in ready:
            with suppress(BlockingIOError):
                self._woken.recv(4096)

    def _wake_up(self) -> None:
        with suppress(OSError):
            self._waking.send(b"\0")

    def _end(self, error: ClientError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._failure = error
        self._protocol.close(error)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._guard.wake()

    def _lose(self, cause: str) -> None:
        self._end(self._protocol.lost(cause))

    def _end_reason(self) -> ClientError:
        if self._failure is None:
            return NotConnectedError("the client is closed")
        return again(self._failure)

    def _open_channel(self, channel: Channel, uri: ServerUri, timeout: float) -> None:
        self._encoded += channel.open()
        try:
            self.pump(lambda: channel.is_open, timeout, "its answer")
        except ClientError as error:
            failure = no_connection(uri, error)
            with self._guard.turn():
                self._end(failure)
            self.release()
            raise failure from None
