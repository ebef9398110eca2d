"""The clients on the transports of old ones: headers in FIX, NVFIX, XML and SOAP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from amperage.client import BadFilterError, Client
from tests.client.shells import NewClient
from tests.support.server import free_port, running_server
from tests.support.waiting import WAIT_SECONDS

MESSAGE_TYPES = {"fix": "fix", "nvfix": "nvfix", "xml": "xml", "soap": "xml"}
KEYS = {"fix": "/37", "nvfix": "/id", "xml": "/o/id"}


def body(protocol: str, number: int) -> bytes:
    """A message whose key is a number."""
    return {
        "fix": b"37=%d\x0154=1\x01",
        "nvfix": b"id=%d\x01side=1\x01",
        "xml": b"<o><id>%d</id></o>",
    }[MESSAGE_TYPES[protocol]] % number


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A server's ports by protocol; each message type has a topic with records."""
    ports = {protocol: free_port() for protocol in MESSAGE_TYPES}
    transports = "".join(
        f"<Transport><Name>{protocol}</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Protocol>{protocol}</Protocol><MessageType>{MESSAGE_TYPES[protocol]}</MessageType>"
        "</Transport>"
        for protocol, port in ports.items()
    )
    topics = "".join(
        f"<Topic><Name>kept</Name><MessageType>{message_type}</MessageType><Key>{key}</Key>"
        "<Durability>transient</Durability></Topic>"
        for message_type, key in KEYS.items()
    )
    directory = tmp_path_factory.mktemp("legacy")
    with running_server(directory, transports=transports, elements=f"<SOW>{topics}</SOW>"):
        yield ports


@pytest.fixture(params=MESSAGE_TYPES)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each of the protocols."""
    return str(request.param)


@pytest.fixture
def uri(protocol: str, ports: dict[str, int]) -> str:
    return f"tcp://ann@127.0.0.1:{ports[protocol]}/{protocol}"


def test_messages_and_records_come_as_over_the_amps_protocol(
    new_client: NewClient, protocol: str, uri: str
) -> None:
    """Bodies byte for byte, with keys, correlation ids and topics; braces in texts do no harm."""
    bodies = [body(protocol, number) for number in range(30)]

    async def scenario() -> None:
        async with new_client() as publisher, new_client() as subscriber:
            for client in (publisher, subscriber):
                await client.connect(uri)
                assert (await client.logon()).version
            live = await subscriber.subscribe("kept", filter=f"{KEYS[MESSAGE_TYPES[protocol]]} < 9")
            braces = await subscriber.subscribe("}{\"'<&")
            await publisher.publish_all("kept", bodies)
            await publisher.publish("}{\"'<&", bodies[0], correlation_id="b2xk")
            await publisher.flush()
            received: list[bytes] = []
            while len(received) < 9:
                received += [one.body for one in await live.batch(timeout=WAIT_SECONDS)]
            assert received == bodies[:9]
            (message,) = await braces.batch(timeout=WAIT_SECONDS)
            assert (message.topic, message.correlation_id) == ("}{\"'<&", "b2xk")
            records = [one async for one in await subscriber.sow("kept", batch_size=7)]
            assert {one.body for one in records} == set(bodies)
            assert {one.topic for one in records} == {"kept"}
            assert len({one.sow_key for one in records}) == len(bodies)

    asyncio.run(scenario())


def test_a_refusal_has_its_reason(new_client: NewClient, uri: str) -> None:
    async def scenario() -> None:
        async with new_client() as client:
            await client.connect(uri)
            await client.logon()
            with pytest.raises(BadFilterError):
                await client.subscribe("kept", filter="/a >")

    asyncio.run(scenario())


def test_an_order_cannot_be_asked_for(new_client: NewClient, uri: str, protocol: str) -> None:
    """The protocols have no field for it, and unsorted records would be the wrong answer."""

    async def scenario() -> None:
        async with new_client() as client:
            await client.connect(uri)
            await client.logon()
            with pytest.raises(ValueError, match=f"order_by: the protocol {protocol} has no field"):
                await client.sow("kept", order_by="/a")

    asyncio.run(scenario())


def test_compression_goes_below(protocol: str, uri: str) -> None:
    with Client("pressed") as client:
        client.connect(f"{uri}?compression=zlib")
        client.logon()
        stream = client.subscribe("pressed")
        client.publish("pressed", body(protocol, 1))
        (message,) = stream.batch(timeout=WAIT_SECONDS)
        assert message.body == body(protocol, 1)


def test_refused_messages_are_told_by_their_numbers(protocol: str, uri: str) -> None:
    refused: list[bytes] = []
    with Client("numbered", on_refused=lambda message, _: refused.append(message.body)) as client:
        client.connect(uri)
        client.logon()
        client.publish("kept", body(protocol, 1))
        client.publish("/AMPS/no", body(protocol, 2))
        client.publish("kept", body(protocol, 3))
        client.flush()
    assert refused == [body(protocol, 2)]
