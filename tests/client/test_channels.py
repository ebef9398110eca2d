"""Every way to a server: websocket, Unix socket, compression; with the real server."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from amperage.client import AsyncHAClient, ConnectError, ProtocolError, parse_uri
from amperage.client.channels import CompressedChannel, WebsocketChannel
from tests.client.shells import HA_SHELLS, NewClient
from tests.support.server import free_port, running_server
from tests.support.waiting import WAIT_SECONDS

TRANSPORT = """
<Transport>
  <Name>{name}</Name>
  <Type>{type}</Type>
  <Protocol>{protocol}</Protocol>
  {more}
</Transport>
"""


@dataclass(frozen=True)
class Ways:
    """The URIs of one server, and whom to trust."""

    uris: dict[str, str]
    trusting: ssl.SSLContext


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    directory = tmp_path_factory.mktemp("server")
    web, secure = free_port(), free_port()
    authority = trustme.CA()
    certificate = directory / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    address = "<InetAddr>127.0.0.1:{}</InetAddr>"
    tls = f"<Certificate>{certificate}</Certificate><PrivateKey>{certificate}</PrivateKey>"
    transports = "".join(
        TRANSPORT.format(name=name, type=kind, protocol=protocol, more=more)
        for name, kind, protocol, more in (
            ("web", "tcp", "websocket", address.format(web)),
            ("secure-web", "tcps", "websocket", address.format(secure) + tls),
            ("local", "amps-unix", "amps", f"<FileName>{directory / 'amps.sock'}</FileName>"),
        )
    )
    with running_server(directory, transports=transports) as server:
        yield Ways(
            {
                "compressed": f"tcp://127.0.0.1:{server.port}/amps/json?compression=zlib",
                "websocket": f"ws://127.0.0.1:{web}/amps/json",
                "deflated websocket": f"ws://127.0.0.1:{web}/amps/json?compression=zlib",
                "encrypted websocket": f"wss://ann:secret@127.0.0.1:{secure}/amps/json",
                "unix": f"unix://{directory / 'amps.sock'}?message_type=json",
                "wrong path": f"ws://127.0.0.1:{web}/amps/no-such-type",
            },
            context,
        )


WAYS = ["compressed", "websocket", "deflated websocket", "encrypted websocket", "unix"]


@pytest.mark.parametrize("way", WAYS)
def test_messages_go_both_ways_in_order(new_client: NewClient, ways: Ways, way: str) -> None:
    bodies = [b'{"n":%d,"text":"%s"}' % (number, b"x" * number) for number in range(2000)]
    bodies.append(b'{"bytes":"\xff\xfe"}')

    async def scenario() -> None:
        async with new_client(ssl_context=ways.trusting) as client:
            await client.connect(ways.uris[way])
            await client.logon()
            await client.heartbeat(5)
            stream = await client.subscribe("t")
            await client.publish_all("t", bodies)
            await client.flush()
            received: list[bytes] = []
            while len(received) < len(bodies):
                received += [message.body for message in await stream.batch(timeout=WAIT_SECONDS)]
            assert received == bodies

    asyncio.run(scenario())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", HA_SHELLS.values(), ids=HA_SHELLS)
def test_a_client_that_stays_connected_takes_every_way(
    make: Callable[..., AsyncHAClient], ways: Ways, way: str
) -> None:
    async def scenario() -> None:
        async with make([ways.uris[way]], ssl_context=ways.trusting) as client:
            await client.connect()
            await client.publish("t", b"{}")
            await client.flush()

    asyncio.run(scenario())


def test_a_server_that_agrees_to_no_websocket_is_told(new_client: NewClient, ways: Ways) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            with pytest.raises(ConnectError, match=r"no websocket: .*404"):
                await client.connect(ways.uris["wrong path"])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"\x00\x00\x00\x02{}\r\n\r\n"]
)
def test_a_peer_that_speaks_something_else_is_no_websocket(answer: bytes) -> None:
    channel = WebsocketChannel(parse_uri("ws://h:1/amps"))
    channel.open()
    with pytest.raises(ProtocolError, match="no websocket"):
        list(channel.decode(answer))


def test_a_server_that_hangs_up_instead_of_answering_is_told(new_client: NewClient) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]

            def hang_up() -> None:
                listener.accept()[0].close()

            threading.Thread(target=hang_up, daemon=True).start()
            async with new_client() as client:
                with pytest.raises(ConnectError, match=f"Unable to connect to AMPS at .*:{port}"):
                    await client.connect(f"ws://127.0.0.1:{port}/amps")

    asyncio.run(scenario())


def test_a_unix_socket_that_is_not_there_is_told(new_client: NewClient, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            with pytest.raises(ConnectError, match=r"none\.sock: No such file"):
                await client.connect(f"unix://{tmp_path / 'none.sock'}")

    asyncio.run(scenario())


def test_a_server_that_answers_uncompressed_is_left(new_client: NewClient) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            async with new_client() as client:
                await client.connect(f"tcp://127.0.0.1:{port}/amps?compression=zlib")
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(b"\x00\x00\x00\x02{}")
                    with pytest.raises(ProtocolError, match="not compressed"):
                        await client.logon()

    asyncio.run(scenario())


def test_compression_is_one_stream_cut_anywhere() -> None:
    ours, theirs = CompressedChannel(), CompressedChannel()
    sent = b"".join(ours.encode(b"frame %d" % number) for number in range(3))
    pieces = [bytes([value]) for value in sent]
    assert b"".join(b"".join(theirs.decode(piece)) for piece in pieces) == b"frame 0frame 1frame 2"
    with pytest.raises(ProtocolError):
        list(theirs.decode(b"not zlib at all"))


def test_a_websocket_asks_for_the_path_with_the_credentials_of_the_uri() -> None:
    request = WebsocketChannel(parse_uri("ws://ann:a%3Ab@h:1/x/amps/json")).open().decode()
    assert request.startswith("GET /x/amps/json HTTP/1.1\r\n")
    assert "Authorization: Basic YW5uOmE6Yg==\r\n" in request
    assert "Authorization" not in WebsocketChannel(parse_uri("ws://ann@h:1/amps")).open().decode()
