"""Longest round trips of a client beside attacks of another client.

    python -m benchmarks.stalls [ATTACK ...]

A client in a process of its own sends a `flush` a millisecond after the last one was answered,
while another client attacks. Of the longest round trips the table has the whole time, the time
without the waits of both ends (the engine's thread and this client) for a processor, so that
figures of a busy machine can be compared, and the time for which the engine's thread ran.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import Server, amperage, free_port
from benchmarks.tables import print_table

LARGE: Final = 190 * 1024 * 1024
CONNECTIONS: Final = 20_000
RECORDS: Final = 200_000
FRAMES: Final = 100_000
SUBSCRIPTIONS: Final = 100_000
_PAUSE_S: Final = 0.001
_IDLE_S: Final = 3.0

_ELEMENTS: Final = """
  <SOW>
    <Topic>
      <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
  </SOW>
"""
_TRANSPORTS: Final = """
  <Transport><Name>ws</Name><Type>tcp</Type><Protocol>websocket</Protocol>
    <InetAddr>127.0.0.1:{websocket}</InetAddr></Transport>
  <Transport><Name>fix</Name><Type>tcp</Type><Protocol>fix</Protocol><MessageType>fix</MessageType>
    <InetAddr>127.0.0.1:{fix}</InetAddr></Transport>
  <Transport><Name>xml</Name><Type>tcp</Type><Protocol>xml</Protocol><MessageType>xml</MessageType>
    <InetAddr>127.0.0.1:{xml}</InetAddr></Transport>
"""

Ports = Mapping[str, int]
Attack = Callable[[Ports], None]


class Peer:
    """A client that speaks in bytes."""

    def __init__(self, port: int, name: str = "attacker") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.send(
            {"c": "logon", "cid": "logon", "client_name": name, "mt": "json", "a": "processed"}
        )
        self.read_until(b'"cid":"logon"')

    def send(self, header: Mapping[str, object], body: bytes = b"") -> None:
        """Send a command."""
        self.socket.sendall(frame(header, len(body)) + body)

    def read_until(self, mark: bytes) -> None:
        """Read and drop data up to the end of a mark."""
        while mark not in self._received:
            got = self.socket.recv(1 << 20)
            if not got:
                raise EOFError("the server has closed the connection")
            self._received = self._received[-len(mark) :] + got
        self._received = self._received.split(mark, 1)[1]

    def settle(self) -> None:
        """Wait until everything sent before has been obeyed."""
        self.send({"c": "flush", "cid": "settled", "a": "completed"})
        self.read_until(b'"cid":"settled"')


def frame(header: Mapping[str, object], body_size: int = 0) -> bytes:
    """Return the beginning of a frame, up to its body."""
    content = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">I", len(content) + body_size) + content


def large_bodies(ports: Ports) -> None:
    """Publish bodies of 190 MB to five subscribers that do not read."""
    readers = [Peer(ports["amps"], f"reader{number}") for number in range(5)]
    for reader in readers:
        reader.send({"c": "subscribe", "t": "large", "cid": "s", "a": "processed"})
        reader.read_until(b'"cid":"s"')
    peer = Peer(ports["amps"])
    for _ in range(3):
        peer.send({"c": "publish", "t": "large"}, b"x" * LARGE)
    peer.settle()
    time.sleep(_IDLE_S)
    for reader in readers:
        reader.socket.close()
    peer.socket.close()
    time.sleep(_IDLE_S)


def large_record(ports: Ports) -> None:
    """Publish a record of 190 MB, and change it with delta_publish."""
    peer = Peer(ports["amps"])
    peer.send({"c": "publish", "t": "records"}, b'{"id":0,"x":"%s"}' % (b"x" * LARGE))
    peer.send({"c": "delta_publish", "t": "records"}, b'{"id":0,"y":1}')
    peer.settle()
    peer.send({"c": "sow_delete", "t": "records", "f": "/id = 0"})
    peer.settle()


def connections(ports: Ports) -> None:
    """Connect, log on and vanish, 20,000 times."""
    logon = frame({"c": "logon", "client_name": "c", "mt": "json"})
    for start in range(0, CONNECTIONS, 200):
        sockets = []
        for _ in range(min(200, CONNECTIONS - start)):
            one = socket.create_connection(("127.0.0.1", ports["amps"]))
            one.sendall(logon)
            sockets.append(one)
        for one in sockets:
            one.close()


def records(ports: Ports) -> None:
    """Publish 200,000 records, order them, group them, and delete them."""
    peer = Peer(ports["amps"])
    numbers = list(range(RECORDS))
    random.Random(1).shuffle(numbers)
    header = {"c": "publish", "t": "records"}
    for start in range(0, RECORDS, 1000):
        bodies = [b'{"id":%d,"g":"g%d","x":1}' % (n, n % 50_000) for n in numbers[start:][:1000]]
        peer.socket.sendall(b"".join(frame(header, len(body)) + body for body in bodies))
    peer.settle()
    queries: Sequence[Mapping[str, object]] = (
        {"orderby": "/x ASC, /id DESC"},
        {"orderby": "/g"},
        {"opts": "projection=[/g,sum(/x) as /n],grouping=[/g]"},
        {"f": "/g LIKE '^(g1|g2)+[0-9]*9$'"},
    )
    for query in queries:
        peer.send({"c": "sow", "t": "records", "cid": "q", "a": "completed", "bs": 1000, **query})
        peer.read_until(b'"c":"ack"')
    peer.send({"c": "sow_delete", "t": "records", "f": "1=1", "cid": "d", "a": "completed"})
    peer.read_until(b'"cid":"d"')


def subscriptions(ports: Ports) -> None:
    """Subscribe 100,000 times with filters, and unsubscribe, once by vanishing."""
    for vanishes in (False, True):
        peer = Peer(ports["amps"])
        for start in range(0, SUBSCRIPTIONS, 1000):
            peer.socket.sendall(
                b"".join(
                    frame({"c": "subscribe", "t": "many", "sub_id": str(n), "f": f"/qty = {n}"})
                    for n in range(start, start + 1000)
                )
            )
        peer.settle()
        if not vanishes:
            peer.send({"c": "unsubscribe", "sub_id": "all", "cid": "u", "a": "processed"})
            peer.read_until(b'"cid":"u"')
        peer.socket.close()
    time.sleep(_IDLE_S)


def nested(ports: Ports) -> None:
    """Publish bodies that are deeply nested, and such with very many fields."""
    peer = Peer(ports["amps"])
    peer.send({"c": "subscribe", "t": "nested", "f": "/a/b/c/d = 1 OR /z = 2"})
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    wide = b"{%s}" % b",".join(b'"f%d":%d' % (n, n) for n in range(200_000))
    for _ in range(20):
        peer.send({"c": "publish", "t": "nested"}, deep)
        peer.send({"c": "publish", "t": "nested"}, wide)
        peer.send({"c": "publish", "t": "records"}, wide)
    peer.settle()


def expressions(ports: Ports) -> None:
    """Match expensive regular expressions."""
    peer = Peer(ports["amps"])
    peer.send({"c": "subscribe", "t": "re", "f": "/a LIKE '^(a+)+$' OR /a LIKE '(x|y|a)*b.*c.*d'"})
    for _ in range(5):
        peer.send({"c": "publish", "t": "re"}, b'{"a":"%s!"}' % (b"a" * 10_000))
    peer.settle()


def compressed(ports: Ports) -> None:
    """Send data that are tiny compressed and large inflated."""
    with socket.create_connection(("127.0.0.1", ports["amps"])) as peer:
        packer = zlib.compressobj()
        logon = frame({"c": "logon", "client_name": "z", "mt": "json"})
        header = frame({"c": "publish", "t": "z"}, 64 * 1024 * 1024)
        with contextlib.suppress(OSError):
            peer.sendall(packer.compress(logon) + packer.flush(zlib.Z_SYNC_FLUSH))
            for _ in range(4):
                peer.sendall(packer.compress(header + b"\0" * (64 * 1024 * 1024)))
            peer.sendall(packer.flush(zlib.Z_SYNC_FLUSH))
        time.sleep(_IDLE_S)


def mutated(protocol: str) -> Attack:
    """Return the attack with mutated frames of a protocol."""

    def attack(ports: Ports) -> None:
        chance = random.Random(protocol)
        seeds = _seeds(protocol)
        sent = 0
        while sent < FRAMES:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", ports[protocol])) as peer,
            ):
                peer.settimeout(5)
                if protocol == "websocket":
                    peer.sendall(_UPGRADE)
                    peer.recv(4096)
                peer.sendall(_packed(protocol, seeds[0]))
                reader = threading.Thread(target=_drain, args=(peer,), daemon=True)
                reader.start()
                for _ in range(200):
                    sent += 1
                    peer.sendall(_packed(protocol, _mutate(chance.choice(seeds), chance)))

    return attack


_UPGRADE: Final = (
    b"GET /amps/json HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def _drain(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while peer.recv(1 << 16):
            pass


def _seeds(protocol: str) -> Sequence[bytes]:
    """Return contents of frames, the first of which is a logon."""
    if protocol == "fix":
        separator, equals = b"\x01", b"="
        rows: Sequence[Mapping[bytes, bytes]] = (
            {b"20000": b"logon", b"20001": b"1", b"20009": b"f", b"20037": b"processed"},
            {b"20000": b"publish", b"20005": b"records", b"1": b"2"},
            {b"20000": b"subscribe", b"20005": b"records", b"20001": b"2", b"20004": b"/1=2"},
        )
        return [
            separator.join(name + equals + value for name, value in row.items()) + b"\x01\x02{}"
            for row in rows
        ]
    commands: Sequence[tuple[Mapping[str, object], bytes]] = (
        ({"c": "logon", "cid": "1", "client_name": "m", "mt": "json"}, b""),
        ({"c": "publish", "t": "records", "a": "processed", "cid": "2"}, b'{"id":1,"x":[1,2]}'),
        ({"c": "publish", "t": "records", "s": 7}, b'{"id":2,"x":"\xc3\xa4"}'),
        ({"c": "delta_publish", "t": "records"}, b'{"id":1,"y":{"z":1.5}}'),
        ({"c": "subscribe", "t": "rec.*", "sub_id": "a", "f": "/id > 1 AND /x LIKE 'a'"}, b""),
        ({"c": "sow_and_subscribe", "t": "records", "sub_id": "b", "opts": "oof"}, b""),
        ({"c": "sow", "t": "records", "cid": "q", "orderby": "/id", "n": 10}, b""),
        ({"c": "sow_delete", "t": "records", "f": "/id = 2"}, b""),
        ({"c": "unsubscribe", "sub_id": "all"}, b""),
        ({"c": "heartbeat", "opts": "start,10"}, b""),
        ({"c": "flush", "cid": "9", "a": "completed"}, b""),
    )
    contents = [json.dumps(header).encode() + body for header, body in commands]
    if protocol == "xml":
        head = b"<?xml version='1.0'?><SOAP-ENV:Envelope><SOAP-ENV:Header>%s</SOAP-ENV:Header>"
        fields = (b"<Cmd>logon</Cmd>", b"<Cmd>publish</Cmd><Tpc>records</Tpc>")
        tail = b"<SOAP-ENV:Body><id>1</id></SOAP-ENV:Body></SOAP-ENV:Envelope>"
        return [head % field + tail for field in fields]
    return contents


def _mutate(content: bytes, chance: random.Random) -> bytes:
    """Return a content with a few octets changed, removed, repeated or put in."""
    octets = bytearray(content)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(octets) or 1)
        kind = chance.randrange(4)
        if kind == 0 and octets:
            octets[at] = chance.randrange(256)
        elif kind == 1:
            del octets[at : at + chance.randrange(8)]
        elif kind == 2:
            octets[at:at] = octets[at : at + chance.randrange(64)]
        else:
            octets[at:at] = chance.randbytes(chance.randrange(4))
    return bytes(octets)


def _packed(protocol: str, content: bytes) -> bytes:
    if protocol == "websocket":
        size = len(content)
        length = struct.pack(">B", 0x80 | size) if size < 126 else struct.pack(">BH", 0xFE, size)
        return b"\x81" + length + b"\0\0\0\0" + content
    return struct.pack(">I", len(content)) + content


ATTACKS: Final[Mapping[str, Attack]] = {
    "nothing": lambda _: time.sleep(_IDLE_S),
    "large bodies": large_bodies,
    "large record": large_record,
    "connections": connections,
    "records": records,
    "subscriptions": subscriptions,
    "nested": nested,
    "expressions": expressions,
    "compressed": compressed,
    "mutated amps": mutated("amps"),
    "mutated websocket": mutated("websocket"),
    "mutated fix": mutated("fix"),
    "mutated xml": mutated("xml"),
}


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The times of a round trip, in ms.

    Attributes:
        whole: from the request to its answer.
        ran: the engine's thread ran for so long meanwhile.
        waited: the engine's thread and the client waited for a processor for so long meanwhile.
    """

    whole: float
    ran: float
    waited: float

    @property
    def held_up(self) -> float:
        """The whole, less the waits for a processor."""
        return self.whole - self.waited


def measure(server: Server, stop: object, results: object) -> None:
    """Make round trips until told to stop, and hand over the longest ones."""
    peer = Peer(server.port, "innocent")
    engine = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")
    client = Path("/proc/thread-self/schedstat")
    trips: list[RoundTrip] = []
    while not stop.is_set():  # type: ignore[attr-defined]  # an event of a context
        before, begun = (_schedule(engine), _schedule(client)), time.perf_counter()
        peer.settle()
        whole, after = time.perf_counter() - begun, (_schedule(engine), _schedule(client))
        ran = after[0][0] - before[0][0]
        waited = sum(now[1] - then[1] for now, then in zip(after, before, strict=True))
        trips.append(RoundTrip(whole * 1e3, ran / 1e6, waited / 1e6))
        time.sleep(_PAUSE_S)
    results.put(trips)  # type: ignore[attr-defined]  # a queue of a context


def _schedule(path: Path) -> tuple[int, int]:
    """Return for how long a thread has run, and has waited for a processor, in ns."""
    ran, waited, _ = path.read_text().split()
    return int(ran), int(waited)


@contextlib.contextmanager
def _measured(server: Server, trips: list[RoundTrip]) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    stop, results = context.Event(), context.Queue()
    process = context.Process(target=measure, args=(server, stop, results))
    process.start()
    try:
        time.sleep(1.0)
        yield
    finally:
        stop.set()
        trips += results.get()
        process.join()


def main(names: Sequence[str] = ()) -> None:
    """Measure and print."""
    rows: list[Sequence[object]] = []
    for name in names or ATTACKS:
        ports = {protocol: free_port() for protocol in ("websocket", "fix", "xml")}
        with amperage(_ELEMENTS, transports=_TRANSPORTS.format(**ports)) as server:
            trips: list[RoundTrip] = []
            before = server.resident_bytes
            with _measured(server, trips):
                ATTACKS[name]({**ports, "amps": server.port})
            longest = max(trips, key=lambda trip: trip.whole)
            held_up = max(trips, key=lambda trip: trip.held_up)
            ran = max(trip.ran for trip in trips)
            grown = (server.resident_bytes - before) / 1e6
        rows.append((name, len(trips), longest.whole, held_up.held_up, ran, round(grown)))
        print(*rows[-1], sep="  ", flush=True)
    head = ("beside", "round trips", "longest ms", "without waiting ms", "ran ms", "grown MB")
    print_table("Longest round trips beside attacks", head, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
