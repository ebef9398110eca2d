"""Modules that take their time, wherever credentials come: logons, handshakes, other instances."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from server.security import async_worker
from server.security.async_worker import AsyncWorker
from server.security.authentication import MAX_CHALLENGES
from tests.support.forked import Prepare
from tests.support.raw import RawPeer
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.waiting import WAIT_SECONDS, wait_until

LIBRARY: Final = '''
import asyncio
from pathlib import Path

from server.security.authentication import Admission, Challenge

class Door:
    """Lets those in whose password is `good`, when there is a file `open`; asks whoever asks."""

    async def authenticate(self, credentials, previous):
        user, password = credentials.user, credentials.password
        if password == "ask":
            return Admission(False, "", "", challenge=Challenge(user, "and?"))
        Path(f"asked-{user}").touch()
        try:
            while not Path("open").exists():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            Path(f"given-up-{user}").touch()
            raise
        return Admission(password == "good", user, "" if password == "good" else "not good")

def create_authentication(name, options):
    return Door()
'''

ELEMENTS: Final = """
<Modules><Module><Name>door</Name><Library>./door.py</Library></Module></Modules>
<Authentication><Module>door</Module></Authentication>
<Protocols><Protocol>
  <Name>asking</Name><Module>websocket</Module>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
</Protocol></Protocols>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Group>sinks</Group>
"""

TRANSPORTS: Final = """
<Transport>
  <Name>web</Name><Type>tcp</Type><InetAddr>127.0.0.1:{web}</InetAddr>
  <Protocol>asking</Protocol>
</Transport>
<Transport>
  <Name>replication</Name><Type>amps-replication</Type>
  <InetAddr>127.0.0.1:{replication}</InetAddr>
</Transport>
"""

SOURCE: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>
  <Destination>
    <Name>sink</Name><Group>sinks</Group><SyncType>async</SyncType>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType>
      <ExcludeValidation>replicate</ExcludeValidation>
    </Topic>
    <Transport>
      <Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
      <Authenticator>
        <Module>amps-default-authenticator-module</Module>
        <Options><User>{user}</User><Password>{password}</Password></Options>
      </Authenticator>
    </Transport>
  </Destination>
</Replication>
"""


class House:
    """A server with a door, and where it listens.

    Args:
        directory: where it runs.
        server: the server.
        web: the port for websockets.
        replication: the port for other instances.
    """

    def __init__(self, directory: Path, server: RunningServer, web: int, replication: int) -> None:
        self.directory = directory
        self.server = server
        self.web = web
        self.replication = replication

    def open_door(self) -> None:
        """Let those in who wait."""
        (self.directory / "open").touch()

    def wait_for(self, file: str) -> None:
        """Wait until the module has done something."""
        wait_until((self.directory / file).exists, f"there is no {file}")

    def websocket(self, user: str, password: str) -> ClientConnection:
        """A websocket, with credentials in its handshake."""
        shown = base64.b64encode(f"{user}:{password}".encode()).decode()
        return connect(
            f"ws://127.0.0.1:{self.web}/amps/json",
            additional_headers={"Authorization": f"Basic {shown}"},
            open_timeout=WAIT_SECONDS,
        )


@contextmanager
def running_house(directory: Path, prepare: Prepare | None = None) -> Iterator[House]:
    """A server with a door.

    Args:
        directory: where it runs.
        prepare: called in its process first.
    """
    directory.mkdir()
    (directory / "door.py").write_text(LIBRARY)
    ports = {name: free_port() for name in ("web", "replication")}
    transports = TRANSPORTS.format(**ports)
    with named_server(directory, "sink", ELEMENTS, transports, prepare) as server:
        yield House(directory, server, **ports)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with running_house(tmp_path / "sink") as running:
        yield running


def named_server(
    directory: Path,
    name: str,
    elements: str,
    transports: str = "",
    prepare: Prepare | None = None,
) -> AbstractContextManager[RunningServer]:
    """A server with a name of its own."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=elements, transports=transports, level="info")
    text = text.replace("test-instance", name)
    return running_configuration(directory, text, port, prepare)


def never_time_out() -> None:
    """Let decisions take longer than tests wait."""
    vars(async_worker)["DECISION_TIMEOUT_S"] = 100 * WAIT_SECONDS


def logon(user: str, password: str) -> dict[str, str]:
    return {
        "c": "logon",
        "cid": "1",
        "mt": "json",
        "a": "processed",
        "user_id": user,
        "pw": password,
        "client_name": f"{user}'s program",
    }


@pytest.mark.parametrize(("password", "is_let_in"), [("good", True), ("bad", False)])
def test_a_websocket_handshake_waits_and_others_do_not(
    house: House, password: str, is_let_in: bool
) -> None:
    """The answer to the request is what the module says in the end."""
    outcome: list[str] = []

    def shake_hands() -> None:
        try:
            with house.websocket("ann", password) as client:
                client.send('{"c":"logon","cid":"1","a":"processed","client_name":"page"}')
                outcome.append(str(client.recv(WAIT_SECONDS)))
        except InvalidStatus as refused:
            outcome.append(str(refused.response.status_code))

    client = threading.Thread(target=shake_hands)
    client.start()
    house.wait_for("asked-ann")
    with house.server.connect() as other:
        assert other.ask(logon("bob", "ask"))["status"] == "retry"  # nobody else waits
    assert outcome == []
    house.open_door()
    client.join(WAIT_SECONDS)
    if is_let_in:
        assert '"status":"success"' in outcome[0]
        assert house.server.logs("authid           = 'ann'")
    else:
        assert outcome == ["401"]
        assert house.server.logs("11-0005 Transport[web] refused a websocket handshake")


@pytest.mark.parametrize(
    ("password", "said"),
    [("good", "1F-0006 AMPS replication client session logon"), ("bad", "not good")],
)
def test_another_instance_waits_for_its_greeting(
    house: House, tmp_path: Path, password: str, said: str
) -> None:
    """Nothing is replicated before it is let in; clients are served meanwhile."""
    source = tmp_path / "source"
    source.mkdir()
    elements = SOURCE.format(port=house.replication, user="source", password=password)
    with named_server(source, "source", elements) as sender:
        house.wait_for("asked-source")
        with house.server.connect() as other:
            assert other.ask(logon("bob", "ask"))["status"] == "retry"
        assert "1F-0006" not in house.server.log()
        house.open_door()
        assert house.server.logs(said)
        if password == "good":
            assert sender.logs("1F-0009")
            with house.server.connect() as reader, sender.log_on() as publisher:
                assert reader.ask(logon("reader", "good"))["status"] == "success"
                reader.subscribe("orders", "1")
                publisher.publish("orders", b"{}")
                assert reader.receive()[1] == b"{}"
        else:
            assert sender.waits_for(lambda log: "is not accepted: not good" in log)
            assert "1F-0009" not in sender.log()


@pytest.mark.parametrize("kind", ["stream", "websocket", "replication"])
def test_whoever_hangs_up_is_not_decided_on(tmp_path: Path, kind: str) -> None:
    """The module is told to stop, so that it has time for others."""
    with running_house(tmp_path / "sink", never_time_out) as house:
        hang_up(house, tmp_path, kind)
        house.wait_for("given-up-ann")
        house.open_door()
        with house.server.connect() as other:
            assert other.ask(logon("bob", "good"))["status"] == "success"


def hang_up(house: House, tmp_path: Path, kind: str) -> None:
    """Show credentials, and leave before there is a decision."""
    with ExitStack() as stack:
        if kind == "stream":
            peer = stack.enter_context(house.server.connect())
            peer.send(logon("ann", "good"))
        elif kind == "websocket":
            peer = stack.enter_context(RawPeer(house.web))
            shown = base64.b64encode(b"ann:good").decode()
            peer.socket.sendall(
                "GET /amps/json HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Authorization: Basic {shown}\r\n\r\n".encode()
            )
        else:
            source = tmp_path / "source"
            source.mkdir()
            elements = SOURCE.format(port=house.replication, user="ann", password="good")
            stack.enter_context(named_server(source, "source", elements))
        house.wait_for("asked-ann")


def test_what_came_after_a_logon_is_obeyed_although_its_sender_has_gone(house: House) -> None:
    """Who publishes and leaves need not wait for the logon."""
    with house.server.connect() as peer:
        peer.send(logon("ann", "good"))
        peer.publish("orders", b'{"id":1}')
        house.wait_for("asked-ann")
    house.open_door()
    with house.server.connect() as reader:
        assert reader.ask(logon("reader", "good"))["status"] == "success"
        reader.send({"c": "subscribe", "cid": "s", "sub_id": "s", "t": "orders", "bm": "0"})
        assert reader.receive()[1] == b'{"id":1}'


def test_a_logon_has_so_many_challenges(house: House) -> None:
    """A module and a client that never come to an end are cut off."""
    with house.server.connect() as peer:
        for _ in range(MAX_CHALLENGES):
            assert peer.ask(logon("ann", "ask"))["status"] == "retry"
        ack = peer.ask(logon("ann", "ask"))
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert ack["detail"] == f"{MAX_CHALLENGES} challenges were not enough"
        assert peer.is_disconnected()


STUBBORN: Final = """
import asyncio, time
from pathlib import Path

class Stubborn:
    async def authenticate(self, credentials, previous):
        Path("asked").touch()
        await asyncio.to_thread(time.sleep, 3600)

def create_authentication(name, options):
    return Stubborn()
"""


def test_a_call_that_does_not_return_keeps_no_server_from_ending(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(STUBBORN)
    elements = ELEMENTS.partition("<Protocols>")[0]
    with running_server(tmp_path, elements=elements) as server, server.connect() as peer:
        peer.send({"c": "logon", "cid": "1", "mt": "json", "user_id": "ann", "pw": "x"})
        wait_until((tmp_path / "asked").exists)
        assert server.stop() == 0


def test_a_module_that_does_not_heed_its_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit counts all the same; how such a module may end afterwards concerns nobody."""
    monkeypatch.setattr(async_worker, "DECISION_TIMEOUT_S", 0.05)
    is_over = threading.Event()

    async def stubborn() -> str:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        raise SystemExit("nobody hears of that")

    async def quick() -> str:
        return "yes"

    async def fails() -> str:
        raise SystemExit("no")

    async def ask() -> None:
        worker = AsyncWorker()

        async def answer(make: Callable[[], Coroutine[None, None, str]]) -> str:
            answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            worker.submit(make, str).add_done_callback(answered.set_result)
            return await answered

        assert await answer(stubborn) == "no decision within 0 seconds"
        is_over.set()
        assert "no" in await answer(fails)
        assert await answer(quick) == "yes"

    asyncio.run(asyncio.wait_for(ask(), WAIT_SECONDS))


def test_a_question_that_nobody_waits_for_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up once or twice, while it waits, is worked on, or after its answer."""
    monkeypatch.setattr(async_worker, "MAX_PENDING_DECISIONS", 2)

    async def never() -> str:
        await asyncio.Event().wait()
        return "never"

    async def at_once() -> str:
        return "yes"

    async def ask() -> None:
        worker = AsyncWorker()
        for _ in range(5):
            first, second = (worker.submit(never, str) for _ in range(2))
            full = worker.submit(at_once, str)
            assert full.is_done
            assert full.result == "2 decisions are pending already"
            for pending in (first, second, second):
                pending.cancel()
            answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            asked = worker.submit(at_once, str)
            asked.add_done_callback(answered.set_result)
            assert await answered == "yes"
            asked.cancel()
            assert not first.is_done

    asyncio.run(asyncio.wait_for(ask(), WAIT_SECONDS))
