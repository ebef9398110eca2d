"""Websockets as programs in browsers speak them: headers and bodies are messages of their own."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.raw import SILENCE_SECONDS, RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.support.sow import TOPICS
from tests.transports.script_client import ScriptClient
from tests.transports.support import Authority, WebsocketClient, transport

ELEMENTS = f"""
<MessageTypes>
  <MessageType><Name>parts</Name><Module>composite-local</Module>
    <MessageType>json</MessageType><MessageType>binary</MessageType></MessageType>
</MessageTypes>
{TOPICS}
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>^log-</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@dataclass(frozen=True)
class Web:
    """A server with a websocket transport, and one with TLS."""

    server: RunningServer
    port: int
    secure_port: int
    authority: Authority

    def open(
        self, mode: str = "text", message_type: str = "json", **arguments: Any
    ) -> ScriptClient:
        """Connect without TLS."""
        return ScriptClient(f"ws://127.0.0.1:{self.port}/amps/{message_type}", mode, **arguments)

    def open_secure(self, **arguments: Any) -> ScriptClient:
        """Connect with TLS."""
        url = f"wss://localhost:{self.secure_port}/amps/json"
        return ScriptClient(url, ssl=self.authority.client_context(), **arguments)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One server for all tests; each has topics or records of its own."""
    directory = tmp_path_factory.mktemp("web")
    authority = Authority(directory, "web")
    certificate, key = authority.issue("localhost")
    port, secure_port = free_port(), free_port()
    tls = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    protocol = "<Protocol>websocket</Protocol>"
    transports = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{port}</InetAddr>{protocol}"
    ) + transport("secure", "tcps", f"<InetAddr>127.0.0.1:{secure_port}</InetAddr>{protocol}{tls}")
    with running_server(directory, elements=ELEMENTS, transports=transports) as server:
        yield Web(server, port, secure_port, authority)


@pytest.mark.parametrize("kind", ["ws", "ws-deflate", "wss", "wss-deflate"])
def test_a_session_of_such_a_client(web: Web, kind: str) -> None:
    """Logon, a query that goes on as a subscription, publishes, deltas, deletions, the end."""
    connect = web.open_secure if kind.startswith("wss") else web.open
    compression = "deflate" if kind.endswith("deflate") else None
    with connect(compression=compression) as client:
        ack = client.log_on(kind)
        assert (ack["status"], ack["client_name"]) == ("success", kind)
        client.publish("orders", json.dumps({"id": kind, "n": 1}))
        ack = client.subscribe(
            "orders",
            "sow_and_subscribe",
            filter=f"/id = '{kind}'",
            o="oof,skip_n=0,",
            top_n="",
            orderby="",
            bs=20_000,
        )
        assert ack["status"] == "success"
        assert client.receive()[0]["c"] == "group_begin"
        ((record, found),) = client.receive_records()
        assert json.loads(found) == {"id": kind, "n": 1}
        assert client.receive()[0]["c"] == "group_end"

        client.publish("orders", json.dumps({"n": 2, "id": kind}), command="delta_publish")
        header, body = client.receive()
        assert (header["c"], header["k"], json.loads(body or "")["n"]) == ("p", record["k"], 2)

        deletion = {"c": "sow_delete", "t": "orders", "filter": f"/id = '{kind}'"}
        client.send(deletion | {"a": ",stats", "cid": "d"})
        header, body = client.receive()
        assert (header["c"], header["reason"]) == ("oof", "deleted")
        assert isinstance(body, str)
        stats = client.receive_header()
        assert (stats["a"], stats["cid"], stats["records_deleted"]) == ("stats", "d", 1)
        assert client.ask("unsubscribe", "processed", sub_id="all")["status"] == "success"
        assert client.ask("flush", "processed,completed", client_name=kind)["a"] == "processed"
        assert client.receive_header()["a"] == "completed"
    assert web.server.logs(f"client[{kind}] requested a batch size of 20000 records; limited")


@pytest.mark.parametrize(("mode", "expected"), [("text", str), ("binary", bytes)])
def test_the_first_message_chooses_the_form_of_bodies(web: Web, mode: str, expected: type) -> None:
    """Bodies are text or binary messages as the client said, empty ones too; headers are texts."""
    with web.open(mode) as client, web.server.log_on() as stream:
        client.subscribe(f"mode-{mode}")
        stream.publish(f"mode-{mode}", b'{"}":"\xc3\xbc"}', x='a "}" b\\')
        stream.publish(f"mode-{mode}", b"")
        header, body = client.receive()
        assert header["x"] == 'a "}" b\\'
        assert isinstance(body, expected)
        assert body == ('{"}":"\u00fc"}' if mode == "text" else b'{"}":"\xc3\xbc"}')
        header, body = client.receive()
        assert (header["c"], header["l"], body) == ("p", 0, expected())


def test_a_body_that_is_no_text_is_a_binary_message(web: Web) -> None:
    """Browsers give up a connection over a text message that is not UTF-8."""
    with web.open() as client, web.server.log_on() as stream:
        client.subscribe("no-text")
        stream.publish("no-text", b"\xff")
        assert client.receive()[1] == b"\xff"


def test_a_publish_may_have_no_body_or_many_parts(web: Web) -> None:
    """Parts are joined; composite messages come with the length of each part before it."""
    lengths = struct.pack(">I", 8), struct.pack(">I", 3)
    parts: list[str | bytes] = [lengths[0], '{"id":1}', lengths[1], b"\x00\x01\x02"]
    joined = b'\x00\x00\x00\x08{"id":1}\x00\x00\x00\x03\x00\x01\x02'
    with web.open("binary", "parts") as client, web.server.log_on(message_type="parts") as stream:
        stream.subscribe("parts", "1", f="/0/id = 1")
        client.subscribe("parts")
        client.publish("parts", *parts)
        client.publish("parts")
        assert stream.receive()[1] == joined
        assert client.receive()[1] == joined
        assert client.receive()[1] == b""


def test_batches_come_record_by_record(web: Web) -> None:
    """A batch is a header that says how many, then a header and a body for each record."""
    with web.open() as client:
        for number in range(5):
            client.publish("quotes", json.dumps({"symbol": f"}}\\ {number}", "batch": True}))
        ack = client.ask("sow", t="quotes", f="/batch", query_id="1", bs=3, orderby="/symbol")
        assert ack["query_id"] == "1"
        assert client.receive()[0]["c"] == "group_begin"
        records = client.receive_records() + client.receive_records()
        assert client.receive()[0]["c"] == "group_end"
    assert [json.loads(body)["symbol"] for _, body in records] == [
        f"}}\\ {number}" for number in range(5)
    ]
    assert all(record["k"] and record["l"] == len(body) for record, body in records)


def test_out_of_focus_messages_have_ids_and_bodies(web: Web) -> None:
    """An update that leaves the filter is an oof with the new state."""
    with web.open() as client:
        client.publish("orders", '{"id":"focus","n":1}')
        client.subscribe("orders", "sow_and_subscribe", filter="/n = 1 AND /id = 'focus'", o="oof")
        assert client.receive()[0]["c"] == "group_begin"
        assert len(client.receive_records()) == 1
        client.receive()
        client.publish("orders", '{"id":"focus","n":2}')
        header, body = client.receive()
        assert (header["c"], header["sids"], body) == ("oof", "1", '{"id":"focus","n":2}')


@pytest.mark.parametrize("now", ["1|0|", "0|1|"])
@pytest.mark.parametrize("not_found", ["", "bookmark_not_found=epoch", "bookmark_not_found=fail"])
def test_both_bookmarks_of_now(web: Web, now: str, not_found: str) -> None:
    """The one that such clients write means what comes from now on, whatever is not found."""
    topic = f"log-{now[0]}{not_found[-4:]}"
    with web.open() as client:
        client.publish(topic, '"before"')
        client.ask("flush", "completed")
        assert client.subscribe(topic, bm=now, o=not_found)["status"] == "success"
        client.publish(topic, '"after"')
        assert client.receive()[1] == '"after"'


def test_a_replay_from_the_beginning(web: Web) -> None:
    """Everything, with bookmarks."""
    with web.open() as client:
        for number in range(100):
            client.publish("log-all", str(number))
        assert client.subscribe("log-all", bm="0")["status"] == "success"
        received = [client.receive() for _ in range(100)]
    assert [body for _, body in received] == [str(number) for number in range(100)]
    assert len({header["bm"] for header, _ in received}) == 100


def test_heartbeats_of_such_a_client(web: Web) -> None:
    """It waits for the received ack, and beats by itself."""
    with web.open() as client:
        ack = client.ask("heartbeat", "processed,received", o="start,0.1")
        assert ack["a"] == "received"
        assert client.receive_header()["a"] == "processed"
        for _ in range(5):
            assert client.receive_header() == {"c": "heartbeat"}
            client.send({"c": "heartbeat", "o": "beat"})


def test_publishes_with_numbers_are_acknowledged(web: Web) -> None:
    """The number in an ack stands where such clients look for it."""
    with web.open() as client:
        client.send({"c": "publish", "t": "log-acks", "s": 1, "a": "processed,persisted"}, "1")
        assert {client.receive_header()["a"] for _ in range(2)} == {"processed", "persisted"}


def test_commands_that_are_refused_are_answered(web: Web) -> None:
    """A failure ack with the id of the command, and the connection goes on."""
    with web.open() as client:
        ack = client.subscribe("orders", "sow_and_subscribe", filter="/id =", top_n="")
        assert (ack["status"], ack["reason"]) == ("failure", "bad filter")
        assert client.subscribe("orders")["status"] == "success"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (["one"], "expected a binary message of 4 bytes"),
        ([b"one"], "expected a binary message of 4 bytes"),
        (["\x01\x00\x00\x00"], "expected a binary message of 4 bytes"),
        ([bytes(4)], "expected a binary message of 4 bytes"),
        (
            [b"\x01\x00\x00\x00", "no header"],
            "the header is not a flat JSON object: it begins with the byte 0x6e",
        ),
        ([b"\x01\x00\x00\x00", b""], "the header is not a flat JSON object: it is empty"),
    ],
)
def test_what_is_no_command_ends_the_connection(
    web: Web, messages: list[str | bytes], said: str
) -> None:
    """With a code and a reason that tell the client's programmer, and an entry in the log."""
    with web.open() as client, web.open() as other:
        for message in messages:
            client.connection.send(message)
        with pytest.raises(ConnectionClosed) as raised:
            client.receive()
        assert other.subscribe("others")["status"] == "success"
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code == 1002
    assert raised.value.rcvd.reason.startswith(said)
    assert web.server.logs(said)


class StreamPeer(RawPeer):
    """A peer that sends frames with their lengths inside binary messages."""

    def __init__(self, client: WebsocketClient) -> None:
        self._client = client

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame as one message."""
        content = json.dumps(header).encode() + body
        self._client.connection.send(struct.pack(">I", len(content)) + content)

    def receive(self, wait: float = 20) -> tuple[dict[str, Any], bytes]:
        """The next frame, which is a message with its length."""
        message = self._client.connection.recv(wait)
        assert isinstance(message, bytes)
        assert struct.unpack_from(">I", message)[0] == len(message) - 4
        content = message[4:].decode("latin-1")
        header, end = json.JSONDecoder().raw_decode(content)
        return header, message[4 + end :]


def test_frames_with_lengths_are_answered_in_kind(web: Web) -> None:
    """One client library sends what a stream would hold, and expects the same."""
    with WebsocketClient(f"ws://127.0.0.1:{web.port}/amps/json") as client:
        peer = StreamPeer(client)
        assert peer.log_on("stream")["status"] == "success"
        assert peer.subscribe("stream", "1")["status"] == "success"
        peer.publish("stream", b'{"id":1}')
        header, body = peer.receive()
        assert (header["t"], body) == ("stream", b'{"id":1}')
        content = b"\x00\x00\x00\x16" + b'{"c":"p","t":"stream"}' + b"\x00\x00\x00\x18"
        client.connection.send(content)
        client.connection.send(b'{"c":"p","t":"stream"}22')
        assert [peer.receive()[1] for _ in range(2)] == [b"", b"22"]


def test_each_connection_chooses_for_itself(web: Web) -> None:
    """Clients of all forms hear each other; nothing is said before the first message."""
    plain = WebsocketClient(f"ws://127.0.0.1:{web.port}/amps/json")
    framed = WebsocketClient(f"ws://127.0.0.1:{web.port}/amps/json")
    with web.open() as client, plain, framed:
        with pytest.raises(TimeoutError):
            plain.connection.recv(SILENCE_SECONDS)
        stream = StreamPeer(framed)
        plain.subscribe("mixed")
        client.subscribe("mixed")
        stream.subscribe("mixed", "1")
        client.publish("mixed", "1")
        plain.send({"c": "p", "t": "mixed"}, b"2")
        assert sorted(plain.receive()[1] for _ in range(2)) == [b"1", b"2"]
        assert sorted(stream.receive()[1] for _ in range(2)) == [b"1", b"2"]
        assert sorted(str(client.receive()[1]) for _ in range(2)) == ["1", "2"]
