"""What callers give: a mistake is told at once, costs its call alone, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from amperage.client import (
    AsyncClient,
    AsyncHAClient,
    AuthenticationError,
    Client,
    ClientError,
    CommandError,
    ConnectError,
    ConnectionLostError,
    Credentials,
    GaveUpError,
    HAClient,
    InvalidUriError,
    NotEntitledError,
    PublishStore,
    PublishStoreFullError,
    Server,
    ServerChooser,
    TimedOutError,
)
from amperage.client.limits import MAX_BODY_SIZE, MAX_COMMAND_HEADER_SIZE
from amperage.client.protocol import ClientProtocol
from amperage.client.recovery import RecoveringProtocol
from amperage.wire.framing import MAX_AMPS_FRAME_SIZE
from server.util.limits import MAX_HEADER_SIZE
from tests.client.scripted_peer import HANG_UP, Header, accept, scripted_peer
from tests.client.shells import HA_SHELLS, SHELLS, NewClient
from tests.client.wire_in import make, online, sent
from tests.support.raw import frame

Call = Callable[[ClientProtocol], object]
WRONG: Any = {"a": 1}
WRONG_NUMBER: Any = 5
WRONG_ORDER: Any = "at_random"
NOTHING: Any = None
A_TEXT: Any = "5"
OCTETS: Any = b"t"
UNKNOWN_ACKS: Any = ["complete"]

MISTAKES: list[tuple[Call, str]] = [
    (lambda it: it.publish("t", WRONG), "body: expected bytes or str, not dict"),
    (lambda it: it.publish("t", WRONG, sow_key="k"), "body: expected bytes or str, not dict"),
    (lambda it: it.publish("t", NOTHING), "body: expected bytes or str, not NoneType"),
    (lambda it: it.publish_all("t", [b"1", WRONG]), "body: expected bytes or str, not dict"),
    (lambda it: it.publish_all("t", "123"), "bodies: expected several messages, not one str"),
    (lambda it: it.publish_all("t", OCTETS), "bodies: expected several messages, not one bytes"),
    (lambda it: it.confirmed_publish("t", WRONG, "persisted"), "body: expected bytes or str"),
    (lambda it: it.publish(OCTETS, b""), "topic: expected str, not bytes"),
    (lambda it: it.publish_all(OCTETS, [b""]), "topic: expected str, not bytes"),
    (lambda it: it.publish("t", b"", sow_key=OCTETS), "sow_key: expected str, not bytes"),
    (lambda it: it.publish("t", b"", expiration=A_TEXT), "expiration: expected int, not str"),
    (lambda it: it.publish("t", b"", expiration=-1), "expiration: expected 0 to"),
    (lambda it: it.publish("t", b"", expiration=True), "expiration: expected int, not bool"),
    (lambda it: it.publish("t", "\ud800"), "body: no UTF-8"),
    (lambda it: it.publish("\ud800", b""), "topic: no UTF-8"),
    (
        lambda it: it.publish("t", bytes(MAX_BODY_SIZE + 1)),
        "body: expected 208666624 bytes at most",
    ),
    (lambda it: it.publish_all("t", [b"1", bytes(MAX_BODY_SIZE + 1)]), "body: expected 208666624"),
    (lambda it: it.publish("t" * MAX_COMMAND_HEADER_SIZE, b""), "the header of a p has"),
    (
        lambda it: it.publish("t", b"", sow_key="k" * MAX_COMMAND_HEADER_SIZE),
        "the header of a p has",
    ),
    (lambda it: it.publish_all("t" * MAX_COMMAND_HEADER_SIZE, [b"1"]), "the header of a p has"),
    (
        lambda it: it.confirmed_publish("t" * MAX_COMMAND_HEADER_SIZE, b"", "processed"),
        "smaller portions",
    ),
    (
        lambda it: it.subscribe("t", filter="f" * MAX_COMMAND_HEADER_SIZE),
        "header of a subscribe has",
    ),
    (
        lambda it: it.acknowledge("q", ["1|1|"] * MAX_COMMAND_HEADER_SIZE),
        "header of a sow_delete has",
    ),
    (lambda it: it.subscribe("t", filter=WRONG_NUMBER), "filter: expected str, not int"),
    (lambda it: it.subscribe("t", filter="\ud800"), "filter: no UTF-8"),
    (lambda it: it.subscribe("t", acks=A_TEXT), "acks: expected a list of texts, not one str"),
    (lambda it: it.subscribe("t", acks=UNKNOWN_ACKS), "acks: expected one of .*, not 'complete'"),
    (lambda it: it.sow("t", acks=["persisted"]), "acks: expected one of .*, not 'persisted'"),
    (lambda it: it.confirmed_publish("t", b"", "stats"), "ack: expected one of .*, not 'stats'"),
    (lambda it: it.sow("t", sow_keys="123"), "sow_keys: expected a list of texts, not one str"),
    (lambda it: it.sow("t", sow_keys=[]), "sow_keys: expected at least one key"),
    (lambda it: it.sow("t", top_n=A_TEXT), "top_n: expected int, not str"),
    (lambda it: it.sow_delete("t", body=WRONG), "body: expected bytes or str, not dict"),
    (lambda it: it.sow_delete("t", sow_keys="12"), "sow_keys: expected a list of texts"),
    (lambda it: it.sow_delete("t", sow_keys=[]), "sow_keys: expected at least one key"),
    (lambda it: it.acknowledge("q", "1|1|"), "bookmarks: expected a list of texts, not one str"),
    (lambda it: it.heartbeat(0), "interval: expected seconds from 1 up"),
    (lambda it: it.heartbeat(A_TEXT), "interval: expected int, not str"),
    (lambda it: it.unsubscribe(WRONG_NUMBER), "stream_id: expected str, not int"),
]


@pytest.mark.parametrize(("call", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
@pytest.mark.parametrize("kind", ["one connection", "recovering"])
def test_a_mistake_leaves_nothing_behind(kind: str, call: Call, said: str) -> None:
    protocol = ClientProtocol() if kind == "one connection" else online()
    with pytest.raises((TypeError, ValueError), match=said):
        call(protocol)
    assert not protocol.has_waiting_requests
    assert not protocol.has_inboxes
    if isinstance(protocol, RecoveringProtocol):
        assert len(protocol.publish_sequence.store) == 0
    protocol.publish("t", b"next")
    [(header, body)] = sent(protocol)
    assert (header["t"], body) == ("t", b"next")


def test_what_the_client_lets_through_fits_into_the_limits_of_servers() -> None:
    assert MAX_COMMAND_HEADER_SIZE + len(',"s":18446744073709551615}') <= MAX_HEADER_SIZE
    assert MAX_BODY_SIZE + MAX_HEADER_SIZE <= MAX_AMPS_FRAME_SIZE


@pytest.mark.parametrize("body", ['{"n":"ü"}', b'{"n":"\xc3\xbc"}', bytearray(b'{"n":"\xc3\xbc"}')])
@pytest.mark.parametrize("new", [ClientProtocol, lambda: online(make())])
def test_bodies_are_bytes_or_text(new: Callable[[], ClientProtocol], body: Any) -> None:
    protocol = new()
    protocol.publish("t", body)
    protocol.publish("t", memoryview(body) if isinstance(body, bytes) else body, sow_key="k")
    protocol.publish_all("t", [body, b"2"])
    protocol.confirmed_publish("t", body, "processed")
    expected = '{"n":"ü"}'.encode()
    assert [it for _, it in sent(protocol)] == [expected, expected, expected, b"2", expected]


@pytest.mark.parametrize("client", [Client, AsyncClient, HAClient, AsyncHAClient])
@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("publish", "expiration"),
        ("delta_publish", "sow_key"),
        ("confirmed_publish", "correlation_id"),
        ("subscribe", "filter"),
        ("sow", "order_by"),
        ("sow_and_subscribe", "sub_id"),
        ("sow_delete", "sow_keys"),
    ],
)
def test_options_have_names_that_a_mistake_is_found_in(
    client: type[object], method: str, option: str
) -> None:
    parameters = inspect.signature(getattr(client, method)).parameters
    assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
    assert all(it.kind is not inspect.Parameter.VAR_KEYWORD for it in parameters.values())


URI = "tcp://localhost:1/amps"


async def awaited(*_arguments: object) -> None:
    """A handler of programs that use asyncio."""


AWAITED: Any = awaited


class AwaitedHandler:
    async def __call__(self, *_arguments: object) -> None: ...


class AwaitedAuthenticator:
    async def authenticate(self, given: Credentials) -> Credentials:
        return given

    def retry(self, answered: Credentials) -> Credentials:
        return answered


@pytest.mark.parametrize(
    ("make_it", "said"),
    [
        (lambda: HAClient(URI), "servers: expected a list of URIs, not one str"),
        (lambda: AsyncHAClient(URI), "servers: expected a list of URIs, not one str"),
        (lambda: ServerChooser(WRONG_NUMBER), "servers: expected a list of URIs, not one int"),
        (lambda: ServerChooser([URI], WRONG_ORDER), "order: expected one of round_robin, in_order"),
        (lambda: ServerChooser([WRONG_NUMBER]), "uri: expected str, not int"),
        (lambda: Client().connect(WRONG_NUMBER), "uri: expected str, not int"),
        (lambda: PublishStore(0), "capacity: expected bytes from 1 up, not 0"),
        *(
            case
            for kind in (Client, AsyncClient, lambda **given: HAClient([URI], **given))
            for case in (
                (lambda kind=kind: kind(timeout="5"), "timeout: expected seconds, not str"),
                (lambda kind=kind: kind(timeout=math.nan), "timeout: expected seconds, not nan"),
                (lambda kind=kind: kind(on_refused=5), "on_refused: expected a function, not int"),
            )
        ),
        *(
            case
            for kind in (
                Client,
                AsyncClient,
                lambda **given: HAClient([URI], **given),
                lambda **given: AsyncHAClient([URI], **given),
            )
            for case in (
                (lambda kind=kind: kind(name=5), "name: expected str, not int"),
                (
                    lambda kind=kind: kind(authenticator=5),
                    "authenticator: expected an object with the methods authenticate, retry; int",
                ),
                (
                    lambda kind=kind: kind(authenticator=AwaitedAuthenticator()),
                    "authenticator.authenticate: expected a plain function, not a coroutine",
                ),
                (lambda kind=kind: kind(ssl_context=True), "ssl_context: expected SSLContext"),
            )
        ),
        *(
            case
            for kind in (HAClient, AsyncHAClient)
            for case in (
                (lambda kind=kind: kind([URI], heartbeat="5"), "heartbeat: expected int, not str"),
                (lambda kind=kind: kind([URI], heartbeat=0), "heartbeat: expected seconds from 1"),
                (lambda kind=kind: kind([URI], heartbeat=-1), "heartbeat: expected seconds from"),
                (lambda kind=kind: kind([URI], backoff=3), "backoff: expected Backoff, not int"),
                (lambda kind=kind: kind([URI], publish_store="f"), "publish_store: expected an ob"),
                (lambda kind=kind: kind([URI], bookmark_store="f"), "bookmark_store: expected an"),
            )
        ),
        *(
            (lambda kind=kind, handler=handler: kind(on_refused=handler), "on_refused: expected a")
            for kind in (Client, lambda **given: HAClient([URI], **given))
            for handler in (awaited, partial(awaited, 1), AwaitedHandler())
        ),
        (lambda: HAClient([URI], on_state=AWAITED), "on_state: expected a plain function, not a"),
        (lambda: Server(WRONG_NUMBER), "uri: expected ServerUri, not int"),
        (lambda: HAClient([URI], on_state=WRONG), "on_state: expected a function, not dict"),
        (lambda: AsyncHAClient([URI], on_state=WRONG), "on_state: expected a function, not dict"),
    ],
)
def test_what_clients_and_stores_are_made_with_is_checked_at_once(
    make_it: Callable[[], object], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        make_it()


def test_options_of_later_logons_are_checked_at_once() -> None:
    options: Any = {"option": "ack_conflation=1s"}
    for kind in (HAClient, AsyncHAClient):
        with pytest.raises(TypeError, match="unexpected option"):
            kind(["tcp://localhost:1/amps"], logon_options=options)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimedOutError, TimeoutError),
        (PublishStoreFullError, TimeoutError),
        (ConnectError, ConnectionError),
        (ConnectionLostError, ConnectionError),
        (GaveUpError, ConnectionError),
        (InvalidUriError, ValueError),
        (NotEntitledError, PermissionError),
        (AuthenticationError, PermissionError),
    ],
)
def test_errors_are_python_s_own_kinds_as_well(
    error: type[ClientError], kind: type[Exception]
) -> None:
    assert issubclass(error, kind)
    made = error("publish", "why") if issubclass(error, CommandError) else error("why")
    assert "why" in str(made)


@pytest.mark.parametrize("shell", SHELLS)
def test_before_a_connection_it_is_said_what_to_do(shell: str) -> None:
    async def scenario() -> None:
        for client in (SHELLS[shell](), HA_SHELLS[shell](["tcp://localhost:1/amps"])):
            with pytest.raises(ConnectionError, match=r"call connect\(\) first"):
                await client.publish("t", b"")
            with pytest.raises(ConnectionError, match=r"call connect\(\) first"):
                await client.subscribe("t")

    asyncio.run(scenario())


@pytest.mark.parametrize("next_command", ["flush", "logon"])
def test_before_the_logon_it_is_said_what_to_do(new_client: NewClient, next_command: str) -> None:
    def hang_up(header: Header, _body: bytes) -> list[bytes]:
        return [] if header["c"] == "p" else [HANG_UP]

    async def scenario() -> None:
        with scripted_peer(hang_up) as peer:
            async with new_client() as client:
                await client.connect(f"tcp://127.0.0.1:{peer.port}/amps/json")
                await client.publish("t", b"")
                with pytest.raises(ConnectionLostError, match=r"call logon\(\) after connect\(\)"):
                    await getattr(client, next_command)()

    asyncio.run(scenario())


def test_what_the_server_refused_before_it_closed_is_told(new_client: NewClient) -> None:
    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] != "p":
            return accept(header, body)
        failure = {"c": "ack", "a": "processed", "status": "failure", "reason": "not entitled"}
        return [frame(failure), HANG_UP]

    async def scenario() -> None:
        with scripted_peer(answer) as peer:
            async with new_client() as client:
                await client.connect(f"tcp://127.0.0.1:{peer.port}/amps/json")
                await client.logon()
                await client.publish("t", b"")
                with pytest.raises(ConnectionLostError, match="not entitled"):
                    await client.flush()

    asyncio.run(scenario())


def test_an_error_that_is_told_again_is_another_one(new_client: NewClient) -> None:
    async def scenario() -> None:
        with scripted_peer(lambda it, _: [*accept(it), HANG_UP]) as peer:
            async with new_client() as client:
                await client.connect(f"tcp://127.0.0.1:{peer.port}/amps/json")
                await client.logon()
                frames: set[int] = set()
                seen: list[ClientError] = []
                for _ in range(20):
                    with pytest.raises(ConnectionLostError) as caught:
                        await client.flush()
                    seen.append(caught.value)
                    frames.add(len(traceback.extract_tb(caught.value.__traceback__)))
                assert len({id(error) for error in seen}) == 20
                assert len(frames) <= 2, "the first may come by another way"

    asyncio.run(scenario())
