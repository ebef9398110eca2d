"""Passwords, tokens and what else stands for them are found nowhere that people look."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.exceptions import InvalidStatus

from amperage.wire.framing import Frame, FrameError, FrameReader
from amperage.wire.header import decode_frame
from amperage.wire.legacy.envelope import EnvelopeDialect
from amperage.wire.legacy.fix import FixDialect
from amperage.wire.legacy.peer import LegacyPeer
from amperage.wire.websocket_forms import WholeForm
from tests.admin.support import ask
from tests.support.raw import RawPeer
from tests.support.replication_peer import HELLO, Listening
from tests.support.server import RunningServer, amp_server, free_port, running_server
from tests.transports.support import WebsocketClient, transport

SECRET: Final = "zZsEcReT"
"""What all secrets begin with. It is looked for without regard to case, and in base64."""

LIBRARY: Final = """
from server.security.authentication import Admission, Challenge

class Door:
    async def authenticate(self, credentials, previous):
        password = credentials.password
        if password.endswith("-raise"):
            raise LookupError("nobody knows")
        if password.endswith("-ask"):
            token = "zZsEcReT-challenge"
            return Admission(False, "", "and?", challenge=Challenge(credentials.user, token))
        if password.endswith("-good"):
            return Admission(True, credentials.user, "", token="zZsEcReT-token")
        return Admission(False, "", "not known")

def create_authentication(name, options):
    return Door()
"""

CONFIGURED: Final = """
<Modules>
  <Module>
    <Name>door</Name><Library>./door.py</Library>
    <Options>
      <ClientSecret>zZsEcReT-client</ClientSecret><ApiToken>zZsEcReT-api</ApiToken>
      <Url>https://user:zZsEcReT-url@example.com/x</Url>
    </Options>
  </Module>
  <Module><Name>exec</Name><Library>libamps_exec_authenticator.so</Library></Module>
</Modules>
<Authentication><Module>door</Module></Authentication>
<Protocols><Protocol>
  <Name>basic</Name><Module>websocket</Module>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
</Protocol></Protocols>
<Admin>
  <InetAddr>127.0.0.1:{admin}</InetAddr><FileName>stats.db</FileName><Interval>1s</Interval>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
</Admin>
<MiniDumpDirectory>dumps</MiniDumpDirectory>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>/AMPS/Audit</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>{destinations}</Replication>
"""

DESTINATION: Final = """
<Destination>
  <Name>sink-{name}</Name><SyncType>async</SyncType>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Transport>
    <Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
    <Authenticator><Module>{module}</Module><Options>{options}</Options></Authenticator>
  </Transport>
</Destination>
"""

AUTHENTICATORS: Final = {
    "given": ("amps-default-authenticator-module", "<Password>zZsEcReT-given</Password>"),
    "filed": ("amps-default-authenticator-module", "<PasswordFileName>pw.txt</PasswordFileName>"),
    "variable": (
        "amps-default-authenticator-module",
        "<PasswordEnvironmentVariable>SINK_PW</PasswordEnvironmentVariable>",
    ),
    "command": ("exec", "<UserName>ann</UserName><Command>cat exec.txt</Command>"),
    "failing": ("exec", "<UserName>ann</UserName><Command>cat exec.txt; exit 3</Command>"),
}


@dataclass(frozen=True)
class Used:
    """A server that has been told many secrets.

    Attributes:
        server: the server.
        directory: where it runs.
        admin: the port of its admin interface.
        events: what somebody has heard who subscribes to all event topics.
    """

    server: RunningServer
    directory: Path
    admin: int
    events: bytes


def basic(user: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


UNREADABLE: Final = (
    b'{"c":"logon","user_id":"ann","pw":"zZsEcReT-caf\xe9"}',
    b'{"c":"logon","user_id":"ann","pw":"zZsEcReT-\\q"}',
    b'{"c":"logon","pw":"zZsEcReT-comma",}',
    b'{"c":"logon","pw":"zZsEcReT"x}',
    b"{'pw':'zZsEcReT-quotes'}",
    b'{"pw":"zZsEcReT-no-end',
    b'{"pw":zZsEcReT}',
    b'{"c":"logon","pw":{"pw":"zZsEcReT-object"}}',
    b'{"c":"logon","pw":"zZsEcReT-text","user_id":{}}',
    b"zZsEcReT-no-header",
    b"zZsEcReT}",
)
"""Headers that cannot be read: with each, something else is wrong."""

IMPOSSIBLE: Final = (
    b'{"c":"logon","cid":"1","a":"processed","pw":["zZsEcReT-list"]}',
    b'{"c":"logon","cid":"1","a":"processed","pw":"zZsEcReT-text","s":["zZsEcReT-list"]}',
)
"""Headers that can be read, with a value that its key cannot have."""

GOOD: Final = basic("boss", f"{SECRET}-good")


def _set_variable() -> None:
    """In the server's process, which stands by with an environment of its own."""
    os.environ["SINK_PW"] = f"{SECRET}-variable"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "door.py").write_text(LIBRARY)
    (directory / "pw.txt").write_text(f"{SECRET}-filed\n")
    (directory / "exec.txt").write_text(f"{SECRET}-exec\n")
    admin, web = free_port(), free_port()
    with ExitStack() as stack:
        sinks = {name: stack.enter_context(Listening()) for name in AUTHENTICATORS}
        destinations = "".join(
            DESTINATION.format(name=name, port=sinks[name].port, module=module, options=options)
            for name, (module, options) in AUTHENTICATORS.items()
        )
        address = f"<InetAddr>127.0.0.1:{web}</InetAddr>"
        transports = transport("web", "tcp", f"{address}<Protocol>basic</Protocol>")
        elements = CONFIGURED.format(admin=admin, destinations=destinations)
        server = stack.enter_context(
            running_server(
                directory,
                transports=transports,
                elements=elements,
                level="trace",
                prepare=_set_variable,
            )
        )
        for name, sink in sinks.items():
            if name != "failing":
                _refuse_link(sink)
        assert server.logs("exit code 3")
        yield Used(server, directory, admin, _use(server, web, admin))


def _refuse_link(sink: Listening) -> None:
    """Hear the password of an instance, and hang up."""
    with sink.accept() as peer:
        kind, hello = peer.receive()
        assert kind == HELLO
        assert SECRET in str(hello)


def _logon(secret: str, **more: str) -> dict[str, Any]:
    logon = {"c": "logon", "cid": "1", "mt": "json", "a": "processed", "client_name": "x"}
    return logon | {"user_id": "ann", "pw": f"{SECRET}-{secret}"} | more


def _use(server: RunningServer, web: int, admin: int) -> bytes:
    """Show the server secrets in every way that there is for clients."""
    with server.connect() as reader:
        assert reader.ask(_logon("reader-good", client_name="reader"))["status"] == "success"
        reader.send({"c": "subscribe", "cid": "s", "sub_id": "s", "t": "/AMPS/.*"})
        for secret, status in (
            ("bad", "failure"),
            ("raise", "failure"),
            ("ask", "retry"),
            ("good", "success"),
        ):
            with server.connect() as peer:
                assert peer.ask(_logon(secret))["status"] == status
                if status == "retry":
                    assert peer.ask(_logon("answer-good"))["status"] == "success"
        _send_malformed(server)
        for shown in (GOOD, basic("ann", f"{SECRET}-bad"), f"Negotiate {SECRET}-negotiate"):
            _shake_hands(web, shown)
            ask(admin, "/amps.json", Authorization=shown)
        ask(admin, "/amps.json", Authorization=f"Bearer {SECRET}-bearer")
        ask(admin, f"/amps.json?password={SECRET}-query", Authorization=GOOD)
        ask(admin, f"/nowhere?token={SECRET}-query", Authorization=GOOD)
        return _drain(reader)


def _drain(reader: RawPeer) -> bytes:
    """What somebody has heard so far."""
    found = b""
    reader.send({"c": "flush", "cid": "end", "a": "completed"})
    while True:
        header, body = reader.receive()
        if header.get("cid") == "end":
            return found
        found += json.dumps(header).encode() + body


def _send_malformed(server: RunningServer) -> None:
    """Logons that cannot be read, or are not obeyed, for all kinds of reasons."""
    whole = json.dumps(_logon("malformed")).encode()
    for data in (
        len(whole).to_bytes(4, "big") + whole[:-1] + b"?",
        len(whole[:-3]).to_bytes(4, "big") + whole[:-3],
        len(whole).to_bytes(4, "big") + whole[:40],
        b"GET /amps/json HTTP/1.1\r\nAuthorization: " + GOOD.encode() + b"\r\n\r\n",
        f"POST /x?password={SECRET}-post HTTP/1.1\r\n\r\n".encode(),
        b"\xff\xff\xff\xff" + whole,
        whole,
        b"GIVE zZsEcReT HTTP/1.1\r\n\r\n",
        *(len(frame).to_bytes(4, "big") + frame for frame in (*UNREADABLE, *IMPOSSIBLE)),
    ):
        with server.connect() as peer, suppress(OSError):
            peer.socket.sendall(data)
            peer.socket.shutdown(1)
            while peer.socket.recv(1000):
                pass
    for more in ({"mt": "none"}, {"o": "nonsense=1"}, {"client_name": ""}, {"c": "publish"}):
        with server.connect() as peer:
            peer.send(_logon("refused", **more))
            peer.receive()


def _shake_hands(port: int, shown: str) -> None:
    url = f"ws://127.0.0.1:{port}/amps/json"
    with (
        suppress(InvalidStatus),
        WebsocketClient(url, additional_headers={"Authorization": shown}) as client,
    ):
        client.ask({"c": "logon", "cid": "1", "a": "processed", "pw": f"{SECRET}-second"})


def assert_no_secret(where: str, content: bytes) -> None:
    """See that something has no secret in it, also not in base64, at any offset."""
    text = content.lower()
    forms = [SECRET.lower().encode()]
    for offset in range(3):
        encoded = base64.b64encode(b"x" * offset + SECRET.encode())
        forms.append(encoded[2 + offset : -4].lower())
    for form in forms:
        at = text.find(form)
        assert at < 0, f"{where}: ...{content[max(0, at - 200) : at + 60]!r}"


def test_secrets_are_in_no_log(used: Used) -> None:
    """Though everything is logged, each command as it comes."""
    assert used.server.logs("logon command received")
    assert_no_secret("log", used.server.log().encode())


@pytest.mark.parametrize("content", IMPOSSIBLE)
def test_a_refusal_does_not_repeat_a_secret(used: Used, content: bytes) -> None:
    """The ack says which key is wrong, and what it is instead."""
    with used.server.connect() as peer:
        peer.socket.sendall(len(content).to_bytes(4, "big") + content)
        ack, _ = peer.receive()
    assert ack["reason"] == "bad header"
    assert "expected" in ack["detail"]
    assert_no_secret("ack", json.dumps(ack).encode())


def _read_stream(content: bytes) -> None:
    _decode(FrameReader(), content)


def _read_message(content: bytes) -> None:
    frames: list[Frame] = []
    WholeForm().read((content, False), frames)
    decode_frame(*frames[0])


def _read_nvfix(content: bytes) -> None:
    _decode(LegacyPeer(FixDialect()), content)


def _read_envelope(content: bytes) -> None:
    _decode(LegacyPeer(EnvelopeDialect(namespaces=False)), content)


def _decode(reader: FrameReader, content: bytes) -> None:
    frames = reader.feed(len(content).to_bytes(4, "big") + content)
    if reader.error is not None:
        raise reader.error
    decode_frame(*frames[0])


@pytest.mark.parametrize(
    ("read", "content"),
    [
        *((read, content) for read in (_read_stream, _read_message) for content in UNREADABLE),
        (_read_nvfix, b"20000=logon\x0120038=zZsEcReT\x01\xff\xfe=\x01\x02"),
        (_read_nvfix, b'{"c":"logon","pw":"zZsEcReT"}'),
        (_read_envelope, b"<Envelope><Header><PW>zZsEcReT</PW><"),
        (_read_envelope, b"<PW>zZsEcReT</PW>"),
        (_read_envelope, b"<zZsEcReT/>"),
        (_read_envelope, b"<Envelope><zZsEcReT/></Envelope>"),
        (_read_envelope, b"<Envelope><Header/><Body>zZsEcReT"),
        (_read_envelope, b"<Envelope><Header/><zZsEcReT:Body>zZsEcReT</zZsEcReT>"),
    ],
)
def test_what_cannot_be_read_is_not_quoted(read: Callable[[bytes], None], content: bytes) -> None:
    """What is said of it goes to the log, and to a peer over websocket."""
    with pytest.raises(FrameError) as raised:
        read(content)
    assert_no_secret("problem", str(raised.value).encode())


def test_secrets_are_in_no_event(used: Used) -> None:
    assert b"logon_refused" in used.events
    assert_no_secret("event topics", used.events)


def test_secrets_are_in_no_minidump(used: Used) -> None:
    reply = ask(used.admin, "/amps/administrator/minidump", Authorization=GOOD)
    assert reply.status == 200
    dumps = list((used.directory / "dumps").iterdir())
    assert dumps
    for dump in dumps:
        assert_no_secret("minidump", dump.read_bytes())


def test_secrets_are_in_no_list_of_processes(used: Used) -> None:
    process = Path(f"/proc/{used.server.process.pid}")
    for name in ("cmdline", "comm"):
        assert_no_secret(name, (process / name).read_bytes())
    for task in (process / "task").iterdir():
        assert_no_secret("thread", (task / "comm").read_bytes())


@pytest.mark.parametrize(
    "path",
    [
        "/amps/instance/config.xml",
        "/amps.json",
        "/amps.xml",
        "/amps/mesh.json",
        "/console/graph.json",
        "/console/actions.json",
        "/console/session.json",
        "/metrics",
        "/readyz.json",
    ],
)
def test_secrets_are_not_shown_by_the_admin_interface(used: Used, path: str) -> None:
    """The configuration is, and what became of the links that had passwords."""
    reply = ask(used.admin, path, Authorization=GOOD)
    assert reply.status == 200
    assert_no_secret(path, reply.body)


def test_secrets_are_in_no_file_of_ours(used: Used) -> None:
    """Statistics and journals, the trail among them."""
    ours = [path for path in used.directory.rglob("*") if path.is_file()]
    names = {path.name for path in ours}
    assert {"stats.db", "config.xml", "pw.txt"} <= names
    given = {"config.xml", "pw.txt", "exec.txt", "door.py"}
    for path in ours:
        if path.name not in given and "__pycache__" not in path.parts:
            assert_no_secret(str(path), path.read_bytes())


def test_what_is_said_of_a_configuration_has_no_secret(used: Used) -> None:
    for options in (("--verify-config",), ("--verify-config", "--graph")):
        said = amp_server(*options, "config.xml", cwd=used.directory)
        assert_no_secret("check", (said.stdout + said.stderr).encode())
