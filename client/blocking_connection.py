"""One connection of a blocking client: it reads and writes in the thread that calls it.

There is no thread behind it. The socket is read while a call waits for something: an answer, the
next message of a stream, or room to write. What arrives meanwhile for other streams is kept for
them. The same holds for heartbeats: they are answered during calls.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from client.channels import Channel, channel_for
from client.errors import ClientError, ConnectionLostError, ProtocolError, TimedOutError
from client.logon import LogonDialogue
from client.protocol import ClientProtocol
from client.sockets import no_connection, open_socket
from client.uri import ServerUri
from server.wire.header import Header

_READ_SIZE: Final = 256 * 1024


class BlockingConnection:
    """Joins a protocol to a socket.

    Args:
        protocol: what the connection speaks.
        uri: the server.
        timeout: seconds for connecting.
        ssl_context: for tcps and wss.

    Raises:
        ConnectError: there is no connection to be had.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        uri: ServerUri,
        timeout: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._protocol = protocol
        self._socket: socket.socket | None = open_socket(uri, timeout, ssl_context)
        self._channel: Channel | None = channel_for(uri)
        self._encoded = bytearray()
        self._sent = 0
        self._heard = time.monotonic()
        self._silence_allowed: float | None = None
        if self._channel is not None:
            self._open_channel(self._channel, uri, timeout)

    def log_on(self, dialogue: LogonDialogue, timeout: float) -> Header:
        """Open the session.

        Args:
            dialogue: what to say.
            timeout: seconds to wait for each answer.

        Returns:
            The header of the acknowledgement.
        """
        while dialogue.answer is None:
            request = dialogue.ask()
            self.wait_until(lambda: request.done, timeout, "the answer to logon")  # noqa: B023 - called at once
            dialogue.take_answer(request)
        return dialogue.answer

    def notice_silence(self, allowed: float) -> None:
        """From now on, end the connection when nothing has come for so many seconds."""
        self._heard = time.monotonic()
        self._silence_allowed = allowed

    def close(self, error: ClientError | None = None) -> None:
        """Close the connection.

        Args:
            error: why; None if the client wants it so.
        """
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._protocol.close(error)

    def wait_until(self, arrived: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Read and write until something has arrived.

        Args:
            arrived: whether it has; it looks at a request or an inbox.
            timeout: seconds; None for as long as it takes.
            what: what is waited for, for the error.

        Raises:
            TimedOutError: it has not arrived in time.
            ConnectionLostError: the connection ended and it cannot arrive any more.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not arrived():
            progress = self._send_some()
            if self.receive_some() or arrived() or progress:
                continue
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimedOutError(f"{what} did not come within {timeout:g} seconds")
            silent_until = self._silent_until()
            if silent_until is not None and now >= silent_until:
                raise self._lost(f"the server was silent for {self._silence_allowed:g} seconds")
            ends = [end for end in (deadline, silent_until) if end is not None]
            self._poll(min(ends) - now if ends else None)

    def write(self, timeout: float) -> None:
        """Write what there is to write, reading meanwhile if the server waits for that."""
        while self._pending():
            sent = self._sent
            if not self._send_some():
                self.wait_until(lambda: self._sent > sent, timeout, "room to write")  # noqa: B023 - called at once

    def receive_some(self) -> bool:
        """Take what has come, without waiting.

        Returns:
            Whether anything has.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        try:
            data = self._open_socket().recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise self._lost(f"the connection ended: {error.strerror or error}") from None
        if not data:
            raise self._lost("the server closed the connection")
        self._heard = time.monotonic()
        try:
            self._take(data)
        except ProtocolError as error:
            self.close(error)
            raise
        return True

    def _take(self, data: bytes) -> None:
        if self._channel is None:
            self._protocol.receive(data)
            return
        for piece in self._channel.decode(data):
            self._protocol.receive(piece)

    def _open_channel(self, channel: Channel, uri: ServerUri, timeout: float) -> None:
        self._encoded += channel.open()
        try:
            self.wait_until(lambda: channel.is_open, timeout, "its answer")
        except ClientError as error:
            failure = no_connection(uri, error)
            self.close(failure)
            raise failure from None

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

    def _send_some(self) -> bool:
        pending = self._pending()
        if not pending:
            return False
        try:
            sent = self._open_socket().send(pending)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise self._lost(f"the connection ended: {error.strerror or error}") from None
        del pending[:sent]
        self._sent += sent
        return True

    def _silent_until(self) -> float | None:
        return None if self._silence_allowed is None else self._heard + self._silence_allowed

    def _poll(self, timeout: float | None) -> None:
        poll = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._pending() else 0)
        poll.register(self._open_socket(), events)
        poll.poll(None if timeout is None else max(0, int(timeout * 1000) + 1))

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLostError("not connected")
        return self._socket

    def _lost(self, message: str) -> ConnectionLostError:
        error = ConnectionLostError(message)
        self.close(error)
        return error
