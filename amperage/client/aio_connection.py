"""One connection of an asyncio client.

It has no thread or task of its own: the event loop calls `AioConnection` when bytes arrive. It is
responsible for:

- Backpressure. A stream without a reader must not fill the memory: when too many messages wait in
  all streams together (`amperage.client.backpressure`), the socket is not read until a reader waits
  again and at most half of them are left. While a command waits for its answer, reading continues,
  because the answer arrives after those messages; otherwise heartbeats are sent unrequested. In the
  other direction, `wait_until_written` waits while the transport's write buffer is full.
- Closing. However the connection ends, all waiting tasks are woken, with the reason.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from amperage.client.backpressure import StreamBacklog
from amperage.client.channels import channel_for
from amperage.client.errors import ClientError, ConnectionLostError, TimedOutError, copy_error
from amperage.client.limits import MAX_MISSED_HEARTBEATS
from amperage.client.logon import LogonDialogue
from amperage.client.protocol import ClientProtocol
from amperage.client.sockets import apply_options, connect_error, premature_end_error
from amperage.client.time_limit import TimeLimit
from amperage.client.uri import ServerUri
from amperage.client.waiters import Waiters
from amperage.wire.header import Header


class AioConnection(asyncio.Protocol):
    """Connects a protocol to the event loop.

    Args:
        protocol: the protocol of the connection.
        uri: the server.
        waiters: the tasks to wake when something arrives.
        on_end: a callback for the end of the connection, called with the reason, except after
            `end(None)`.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        uri: ServerUri,
        waiters: Waiters,
        on_end: Callable[[ClientError], None] | None = None,
    ) -> None:
        self._protocol = protocol
        self._waiters = waiters
        waiters.on_wait = self.adjust_reading
        self._on_end = on_end
        self._uri = uri
        self._channel = channel_for(uri)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_ended = False
        self._end_error: ClientError | None = None
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._backlog = StreamBacklog()
        self._is_reading_paused = False
        self._last_received_s = 0.0
        self._silence_timer: asyncio.TimerHandle | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"expected a stream transport, got {transport!r}")
        self._transport = transport
        if self._channel is not None:
            self._send(self._channel.open())

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the protocol, and wake the tasks whose conditions are met."""
        self._last_received_s = self._loop.time()
        self._protocol.traffic.bytes_received += len(data)
        try:
            self._process_input(data)
        except ClientError as error:
            self.end(error)
            return
        finally:
            self._start_handler_calls()
        self._protocol.end_slow_streams()
        self._backlog.adjust(self._protocol.queued_messages, len(data))
        self.write_output()
        self._waiters.wake()
        self.adjust_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection after the server or the network has closed it."""
        cause = f"the connection ended: {exc}" if exc else "the server closed the connection"
        self.end(self._protocol.connection_lost_error(cause))

    def pause_writing(self) -> None:
        """Record that the transport's write buffer is full."""
        self._is_writable.clear()

    def resume_writing(self) -> None:
        """Record that the transport's write buffer has room."""
        self._is_writable.set()

    # Called by the client

    async def wait_until_open(self) -> None:
        """Wait until frames can be sent.

        Raises:
            ConnectError: the connection has ended before.
        """
        channel = self._channel
        if channel is not None:
            await self._waiters.wait_until(
                lambda: channel.is_open or self._is_ended,
                TimeLimit(None),
                "the opening of the connection",
                is_urgent=True,
            )
        if self._end_error is not None:
            raise premature_end_error(self._uri, self._end_error)

    async def log_on(self, dialogue: LogonDialogue, timeout: float) -> Header:
        """Open the session with as many rounds as the dialogue needs; return the last answer."""
        while dialogue.answer is None:
            await asyncio.to_thread(dialogue.prepare)
            request = dialogue.send_logon()
            if position := self.write_output():
                await self.wait_until_written(position, timeout)
            await self._waiters.wait_until(
                lambda: request.is_done,  # noqa: B023 - called before the next round
                TimeLimit(timeout),
                "the answer to logon",
                is_urgent=True,
            )
            dialogue.process_answer(request)
        if self._end_error is not None:  # after the answer
            raise copy_error(self._end_error)
        return dialogue.answer

    async def wait_until_written(self, _position: int, timeout: float) -> None:
        """Wait until the transport's write buffer has room; see `write_output`.

        Raises:
            TimedOutError: the server did not read in time.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._is_writable.wait()
        except TimeoutError:
            raise TimedOutError(f"room to write did not come within {timeout:g} seconds") from None

    def write_output(self) -> int:
        """Write the output, without waiting if the transport's write buffer is full.

        Returns:
            The output position to pass to `wait_until_written`; 0 if the transport's write buffer
            has room.
        """
        if self._transport is None or self._is_ended:
            return 0
        output, channel = self._protocol.output, self._channel
        if channel is None:
            if output:
                self._send(bytes(output))
                output.clear()
        else:
            if output and channel.is_open:
                self._send(channel.encode(bytes(output)))
                output.clear()
            self._send(channel.take_replies())
        return 0 if self._is_writable.is_set() else 1

    def end(self, error: ClientError | None) -> None:
        """Close the connection and wake the waiting tasks.

        Args:
            error: the reason; None if the client closes it. Later reasons are ignored.
        """
        if self._is_ended:
            return
        self._is_ended = True
        self._end_error = error
        self._protocol.close(error)
        self._start_handler_calls()
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        if self._transport is not None:
            self._transport.close()
        self._is_writable.set()
        if self._waiters.on_wait == self.adjust_reading:
            self._waiters.on_wait = None  # it would keep this object
        self._waiters.wake()
        if error is not None and self._on_end is not None:
            self._on_end(error)

    def set_silence_timeout(self, allowed: float) -> None:
        """Start to end the connection after `allowed` seconds without received bytes."""
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        self._last_received_s = self._loop.time()
        self._schedule_silence_check(allowed / MAX_MISSED_HEARTBEATS, allowed)

    def adjust_reading(self) -> None:
        """Pause reading while streams buffer too many messages; otherwise resume it."""
        if self._transport is None or self._is_ended:
            return
        self._backlog.adjust(self._protocol.queued_messages)
        must_pause = self._backlog.is_over_limit and not self._waiters.urgent_count
        if self._is_reading_paused and not must_pause:
            self._is_reading_paused = False
            self._transport.resume_reading()
        elif must_pause and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _start_handler_calls(self) -> None:
        task = self._protocol.handler_calls.start_calls(self._waiters.start_task)
        if task is not None:
            task.add_done_callback(self._end_if_failed)

    def _end_if_failed(self, task: asyncio.Task[None]) -> None:
        """End the connection if a callback has raised an exception."""
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            name = self._protocol.handler_calls.last_name
            error = ConnectionLostError(f"{name} has failed: {failure!r}")
            error.__cause__ = failure
            self.end(error)

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._protocol.traffic.bytes_sent += len(data)
            self._transport.write(data)

    def _process_input(self, data: bytes) -> None:
        if self._is_ended:
            return
        if self._channel is None:
            self._protocol.receive(data)
            return
        for decoded in self._channel.decode(data):
            self._protocol.receive(decoded)

    def _schedule_silence_check(self, delay: float, allowed: float) -> None:
        self._silence_timer = self._loop.call_later(delay, self._check_silence, allowed)

    def _check_silence(self, allowed: float) -> None:
        left = self._last_received_s + allowed - self._loop.time()
        if self._is_reading_paused:  # the server is not silent: we do not read
            self._protocol.send_heartbeat()
            self.write_output()
            self._schedule_silence_check(allowed / MAX_MISSED_HEARTBEATS, allowed)
        elif left > 0:
            self._schedule_silence_check(min(left, allowed / MAX_MISSED_HEARTBEATS), allowed)
        else:
            self.end(
                self._protocol.connection_lost_error(
                    f"the server was silent for {allowed:g} seconds"
                )
            )


async def open_connection(
    make: Callable[[], AioConnection],
    uri: ServerUri,
    timeout: float,
    ssl_context: ssl.SSLContext | None,
) -> AioConnection:
    """Connect to a server.

    Args:
        make: creates the connection for `uri`.
        uri: the server.
        timeout: seconds to wait for all steps together.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.

    Raises:
        ConnectError: the connection cannot be established.
    """
    connection: AioConnection | None = None
    try:
        async with asyncio.timeout(timeout):
            transport, connection = await _try_addresses(make, uri, ssl_context)
            raw_socket = transport.get_extra_info("socket")
            if isinstance(raw_socket, socket.socket):
                apply_options(raw_socket, uri)
            await connection.wait_until_open()
    except ClientError as error:
        if connection is not None:
            connection.end(error)
        raise
    except OSError as error:
        failure = connect_error(uri, error)
        if connection is not None:
            connection.end(failure)
        raise failure from None
    except asyncio.CancelledError:
        if connection is not None:
            connection.end(None)
        raise
    return connection


async def _try_addresses(
    make: Callable[[], AioConnection], uri: ServerUri, ssl_context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, AioConnection]:
    """Try the host's addresses one by one, so that the last failure is raised unchanged."""
    loop = asyncio.get_running_loop()
    if uri.scheme == "unix":
        return await loop.create_unix_connection(make, uri.path)
    tls: dict[str, Any] = {}
    if uri.is_encrypted:
        tls["ssl"] = ssl_context or ssl.create_default_context()
        tls["server_hostname"] = uri.host
    addresses = await loop.getaddrinfo(uri.host, uri.port, type=socket.SOCK_STREAM)
    failure = OSError(f"{uri.host} has no address")
    for *_, address in addresses:
        try:
            return await loop.create_connection(make, str(address[0]), uri.port, **tls)
        except OSError as error:
            failure = error
    raise failure
