"""A destination that keeps nothing: `python -m benchmarks.replication_sink PORT NAME`.

It reads what a source sends, and says that it has it. What is left of what replication costs is
what it costs the source, as if the destination were on a machine of its own.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from typing import Final

import msgspec

from config_schema.problems import Location
from config_schema.selection import TopicPattern
from config_schema.topology import InstanceDescription
from config_schema.topology.description import PeerAddress, TransactionLogTopic
from server.replication.core.frames import (
    MAX_FRAME_SIZE,
    VERSION,
    Ack,
    Hello,
    PositionRequest,
    PositionResponse,
    ReplicationFrameReader,
    encode,
)

ACK_SECONDS: Final = 0.001

_HEAD: Final = struct.Struct("<IBB")
_BATCH: Final = struct.Struct("<QQ")  # after, up to
_BATCH_TYPE: Final = 8
_CHUNK: Final = 1 << 20
_HERE: Final = Location("sink.xml", 1)


class Sink:
    """One connection of a source.

    Args:
        line: the connection.
        name: what the destination is called.
    """

    def __init__(self, line: socket.socket, name: str) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._line = line
        self._name = name
        self._buffer = bytearray(_CHUNK)
        self._came = b""  # of the next frame, as long as its head is not there
        self._passing = 0  # bytes of a frame that are still to come
        self._upto = 0
        self._acknowledged = 0

    def serve(self) -> None:
        """Take all that comes until the source goes away."""
        acked, is_there = 0.0, self._meet()
        while is_there:
            has_news = self._upto > self._acknowledged
            if has_news and time.monotonic() - acked >= ACK_SECONDS:
                acked = time.monotonic()
                self._acknowledged = self._upto
                self._line.sendall(encode(Ack(self._upto)))
            ready, _, _ = select.select([self._line], [], [], ACK_SECONDS if has_news else None)
            if ready:
                count = self._line.recv_into(self._buffer)
                if not count:
                    return
                self._take(memoryview(self._buffer)[:count])

    def _meet(self) -> bool:
        """Say who is there, and where to go on: behind all. Whether it is a source."""
        reader = ReplicationFrameReader(MAX_FRAME_SIZE)
        while data := self._line.recv(_CHUNK):
            reader.feed(data)
            while (frame := reader.next_frame()) is not None:
                if isinstance(frame, Hello):
                    said = msgspec.msgpack.encode(_description(self._name))
                    hello = Hello(
                        VERSION, self._name, self._name, self._name, 1, description=said, nonce=1
                    )
                    self._line.sendall(encode(hello))
                elif isinstance(frame, PositionRequest):
                    self._upto = self._acknowledged = frame.last
                    self._line.sendall(encode(PositionResponse(frame.last, Ack(frame.last))))
                    return True
        return False

    def _take(self, data: memoryview) -> None:
        """Find the heads of frames in what has come; the rest of them is of no interest."""
        place = 0
        while place < len(data):
            passed = min(self._passing, len(data) - place)
            self._passing -= passed
            place += passed
            missing = _HEAD.size + _BATCH.size - len(self._came)
            self._came += data[place : place + missing]
            place = min(place + missing, len(data))
            if len(self._came) < _HEAD.size:
                return
            length, kind, _ = _HEAD.unpack_from(self._came)
            whole = _HEAD.size - 2 + length
            if kind == _BATCH_TYPE:
                if len(self._came) < _HEAD.size + _BATCH.size:
                    return
                self._upto = _BATCH.unpack_from(self._came, _HEAD.size)[1]
            place -= max(len(self._came) - whole, 0)  # of what follows on a short one
            self._passing = max(whole - len(self._came), 0)
            self._came = b""


def _description(name: str) -> InstanceDescription:
    orders = TopicPattern("orders", "json", is_expression=False)
    return InstanceDescription(
        name=name,
        group=name,
        location=_HERE,
        listens=PeerAddress(host=None, port=1, is_secure=False, location=_HERE),
        log_location=_HERE,
        logged=(TransactionLogTopic(orders, _HERE),),
        stored=(),
        destinations=(),
        downgrades=False,
    )


def main(port: str, name: str) -> None:
    """Take what one source after the other sends, until the process is ended."""
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while True:
            line, _ = listener.accept()
            with line:
                Sink(line, name).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
