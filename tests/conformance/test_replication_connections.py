"""How instances are connected to, and who is let in: addresses, credentials, certificates."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.support.raw import SILENCE_SECONDS
from tests.support.replication_peer import BEGIN, HELLO, Listening, ReplicationPeer
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    ServerEnded,
    free_port,
    running_configuration,
    running_server,
    why_no_start,
)
from tests.transports.support import Authority

LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
DESTINATION = """
<Destination>
  <Name>peer</Name><Group>peers</Group><SyncType>async</SyncType>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType>
    <ExcludeValidation>replicate</ExcludeValidation>
  </Topic>
  {transports}
</Destination>
"""
TRANSPORT = "<Transport><Type>{kind}</Type>{elements}</Transport>"
LISTENING = """
<Transport>
  <Name>replication</Name><Type>{kind}</Type><InetAddr>127.0.0.1:{port}</InetAddr>{elements}
</Transport>
"""


def destination(*transports: str) -> str:
    """The sections of an instance that replicates to the peer."""
    one = DESTINATION.format(transports="".join(transports))
    return f"{LOG}<Replication>{one}</Replication>"


def to(*ports: int, elements: str = "", kind: str = "amps-replication") -> str:
    """A Transport of a Destination."""
    addresses = "".join(f"<InetAddr>127.0.0.1:{port}</InetAddr>" for port in ports)
    return TRANSPORT.format(kind=kind, elements=addresses + elements)


@contextmanager
def replicating(directory: Path, *transports: str) -> Iterator[RunningServer]:
    """A server that connects to the peer."""
    with running_server(directory, elements=destination(*transports)) as server:
        yield server


def meet(peer: ReplicationPeer, **fields: object) -> list[object]:
    """Answer an instance that has connected, until it asks; what it has said of itself."""
    kind, hello = peer.receive()
    assert kind == HELLO
    peer.greet(**fields)
    assert peer.receive().kind == BEGIN
    return list(hello)


def test_addresses_are_tried_in_their_order_and_from_the_first_again(tmp_path: Path) -> None:
    first = free_port()
    with (
        Listening() as second,
        Listening() as third,
        replicating(tmp_path, to(first, second.port), to(third.port)) as server,
    ):
        peer = second.accept()
        meet(peer)
        assert server.logs(f"destination peer cannot be reached at 127.0.0.1:{first}")
        with Listening(first) as back:
            with pytest.raises(TimeoutError):  # a link that there is stays
                back.accept(wait=SILENCE_SECONDS)
            peer.socket.close()
            meet(back.accept())
        with pytest.raises(TimeoutError):
            third.accept(wait=SILENCE_SECONDS)


def test_the_transport_after_is_tried_where_nobody_fits(tmp_path: Path) -> None:
    with (
        Listening() as wrong,
        Listening() as right,
        replicating(tmp_path, to(wrong.port), to(right.port)) as server,
    ):
        with wrong.accept() as other:
            other.receive()
            other.greet(group="strangers")
            assert "describes itself" in other.refusal()
        meet(right.accept())
        assert server.logs("1E-0001 test-instance refuses to replicate with peer at 127.0.0.1:")


def test_somebody_of_another_group_is_refused(tmp_path: Path) -> None:
    with Listening() as address, replicating(tmp_path, to(address.port)) as server:
        with address.accept() as peer:
            peer.group = "strangers"
            peer.receive()
            peer.greet()
            why = (
                "peer is of the group strangers, and the destination of test-instance has the "
                "group peers"
            )
            assert why in peer.refusal()
        assert server.logs(why)


def test_pauses_grow_and_the_log_is_not_flooded(tmp_path: Path) -> None:
    with Listening() as address, replicating(tmp_path, to(address.port)) as server:
        for _ in range(4):
            with address.accept() as peer:
                peer.receive()
        assert server.logs("the connection was closed before the handshake", times=1)


AUTHENTICATORS = {
    "configured": ("<User>ann</User><Password>secret</Password>", "secret"),
    "a file": ("<User>ann</User><PasswordFileName>password.txt</PasswordFileName>", "of a file"),
    "a variable": (
        "<User>ann</User><PasswordEnvironmentVariable>HOME</PasswordEnvironmentVariable>",
        os.environ["HOME"],
    ),
}


@pytest.mark.parametrize(("options", "password"), AUTHENTICATORS.values(), ids=AUTHENTICATORS)
def test_an_authenticator_says_who_this_instance_is(
    tmp_path: Path, options: str, password: str
) -> None:
    (tmp_path / "password.txt").write_text("of a file\n")
    module = (
        "<Authenticator><Module>amps-default-authenticator-module</Module>"
        f"<Options>{options}</Options></Authenticator>"
    )
    with Listening() as address, replicating(tmp_path, to(address.port, elements=module)):
        assert meet(address.accept())[7:9] == ["ann", password]


LOADED = """
<Modules>
  <Module><Name>exec</Name><Library>libamps_exec_authenticator.so</Library></Module>
</Modules>
"""


def running(command: str, user: str = "ann") -> str:
    """An Authenticator that runs a command."""
    return (
        f"<Authenticator><Module>exec</Module><Options><UserName>{escape(user)}</UserName>"
        f"<Command>{escape(command)}</Command><MaxLength>20</MaxLength></Options></Authenticator>"
    )


@pytest.mark.parametrize(
    ("command", "token"),
    [
        ('echo "token for {{AMPS_USER_NAME}}"', "token for ann"),
        ("head -c 100000 /dev/zero | tr '\\0' x", 20 * "x"),
        ("sleep 0.1; echo late", "late"),
    ],
)
def test_a_command_gives_the_password(tmp_path: Path, command: str, token: str) -> None:
    with Listening() as address:
        elements = LOADED + destination(to(address.port, elements=running(command)))
        with running_server(tmp_path, elements=elements):
            assert meet(address.accept())[7:9] == ["ann", token]


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {{AMPS_USER_NAME}}",
        'printf %s "{{ AMPS_USER_NAME }}"',
        "printf %s '{{AMPS_USER_NAME}}'",
    ],
)
def test_a_shell_never_reads_the_name_of_the_user(tmp_path: Path, command: str) -> None:
    user = """a"b'$(id)`id`;*"""
    with Listening() as address:
        elements = LOADED + destination(to(address.port, elements=running(command, user)))
        with running_server(tmp_path, elements=elements):
            assert meet(address.accept())[7:9] == [user, user]


@pytest.mark.parametrize(
    ("command", "why"),
    [("echo s3cret; exit 3", "ended with exit code 3"), ("echo s3cret >&2", "has written nothing")],
)
def test_a_command_that_fails_is_said(tmp_path: Path, command: str, why: str) -> None:
    with Listening() as address:
        elements = LOADED + destination(to(address.port, elements=running(command)))
        with running_server(tmp_path, elements=elements) as server:
            assert server.logs(f"the Command that gives the password of 'ann' {why}")
            assert "s3cret" not in server.log().partition("initialization completed")[2]


MULTI = """
<Modules>
  <Module><Name>multi</Name><Library>libamps_multi_authenticator.so</Library></Module>
</Modules>
"""


def directory_user(options: str) -> str:
    """An Authenticator for those who ask a directory."""
    return f"<Authenticator><Module>multi</Module><Options>{options}</Options></Authenticator>"


def test_a_file_has_the_password_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "password.txt").write_text("of a file\n")
    options = (
        "<LDAP.Username>ann</LDAP.Username><LDAP.PasswordFile>password.txt</LDAP.PasswordFile>"
    )
    with Listening() as address:
        elements = MULTI + destination(to(address.port, elements=directory_user(options)))
        with running_server(tmp_path, elements=elements):
            assert meet(address.accept())[7:9] == ["ann", "of a file"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("", "needs LDAP.Username or Kerberos.SPN, found none"),
        ("<LDAP.Username>ann</LDAP.Username>", "LDAP.PasswordFile: is missing"),
    ],
)
def test_a_directory_s_authenticator_needs_a_user_and_a_file(
    tmp_path: Path, options: str, why: str
) -> None:
    elements = MULTI + destination(to(free_port(), elements=directory_user(options)))
    assert why in why_no_start(tmp_path, elements)


def test_a_password_that_is_not_to_be_had_is_said(tmp_path: Path) -> None:
    """Whatever is in its place, the server does not connect, and ends when it is asked to."""
    module = (
        "<Authenticator><Module>amps-default-authenticator-module</Module><Options>"
        "<PasswordFileName>pw.txt</PasswordFileName></Options></Authenticator>"
    )
    file = tmp_path / "pw.txt"
    with Listening() as address, replicating(tmp_path, to(address.port, elements=module)) as server:
        assert server.logs("PasswordFileName pw.txt: No such file or directory")
        file.write_text("\n")
        assert server.logs("PasswordFileName pw.txt: it is empty")
        file.unlink()
        os.mkfifo(file)
        assert server.logs("PasswordFileName pw.txt: it is a pipe and no file")
        assert server.stop() == 0


def test_a_command_that_writes_no_text_gives_no_password(tmp_path: Path) -> None:
    """What cannot be read as UTF-8 is no password, and is not sent with other characters in it."""
    with Listening() as address:
        elements = LOADED + destination(to(address.port, elements=running(r"printf '\377'")))
        with running_server(tmp_path, elements=elements) as server:
            assert server.logs("has written text that is not UTF-8")


GUARDS = {
    "authentication": (
        "<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>",
        "the logon as 'bob' is not accepted: no user may log on",
    ),
    "entitlement": (
        "<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>",
        "is not entitled to replicate to this instance",
    ),
}


@pytest.mark.parametrize(("guard", "why"), GUARDS.values(), ids=GUARDS)
def test_a_transport_decides_who_may_replicate(tmp_path: Path, guard: str, why: str) -> None:
    port = free_port()
    transport = LISTENING.format(kind="amps-replication", port=port, elements=guard)
    with running_server(tmp_path, elements=LOG, transports=transport) as server:
        with ReplicationPeer(port) as peer:
            peer.greet(user="bob", password="x")
            assert why in peer.refusal()
        assert server.logs(why)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """Two authorities, of which each instance trusts the first."""
    directory = tmp_path_factory.mktemp("authorities")
    return Authority(directory, "known"), Authority(directory, "unknown")


def secured(authority: Authority, trusted: Authority, name: str) -> str:
    """The elements of TLS: a certificate, and whom to trust."""
    certificate, key = authority.issue(name)
    return (
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        f"<VerifyClient>true</VerifyClient><CAFile>{trusted.file}</CAFile>"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "does_connect"),
    [(0, 0, True), (1, 0, False), (0, 1, False)],
    ids=["known to each other", "source unknown", "destination unknown"],
)
def test_certificates_are_verified_both_ways(
    tmp_path: Path,
    authorities: tuple[Authority, Authority],
    ours: int,
    theirs: int,
    does_connect: bool,
) -> None:
    port, known = free_port(), authorities[0]
    source, sink = tmp_path / "source", tmp_path / "sink"
    source.mkdir()
    sink.mkdir()
    listening = LISTENING.format(
        kind="amps-replication-secure",
        port=port,
        elements=secured(authorities[theirs], known, "sink.example.com"),
    )
    going = to(
        port,
        kind="amps-replication-secure",
        elements=secured(authorities[ours], known, "source.example.com"),
    )
    elements = f"{LOG}<Group>peers</Group>"
    with (
        named_server(sink, "peer", elements, listening),
        named_server(source, "source", destination(going)) as sender,
    ):
        assert sender.waits_for(lambda log: any(one in log for one in ENDS)), sender.log()
        assert ("1F-0009" in sender.log()) == does_connect, sender.log()


ENDS = ("1F-0009", "1E-0004", "1E-0008")
"""A destination is connected, has closed the connection, or could not be reached."""


@contextmanager
def named_server(
    directory: Path, name: str, elements: str, transports: str = ""
) -> Iterator[RunningServer]:
    """A server with a name of its own."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=elements, transports=transports, level="info")
    text = text.replace("test-instance", name)
    with running_configuration(directory, text, port) as server:
        yield server


OTHER = """
<Replication>
  <Destination>
    <Name>{name}</Name><SyncType>sync</SyncType>
    <AckConflationInterval>10ms</AckConflationInterval>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    {transport}
  </Destination>
</Replication>
"""
VERIFYING = "<VerifyClient>true</VerifyClient><CAFile>{}</CAFile>"
SECURE = "amps-replication-secure"


@contextmanager
def two_servers(
    directory: Path, listening: tuple[str, str], going: tuple[str, str]
) -> Iterator[tuple[RunningServer, RunningServer]]:
    """Two servers that replicate to each other: what takes replication at each, and what goes."""
    names = "one", "two"
    with ExitStack() as stack:
        servers: list[RunningServer] = []
        for name, other, takes, gives in zip(names, names[::-1], listening, going, strict=True):
            (directory / name).mkdir()
            elements = LOG + OTHER.format(name=other, transport=gives)
            running = named_server(directory / name, name, elements, takes)
            servers.append(stack.enter_context(running))
        yield servers[0], servers[1]


def get_across(source: RunningServer, sink: RunningServer, sequence: int) -> None:
    """Publish to a server, and see it come at the other one, and the acknowledgement come back."""
    with sink.log_on("reader") as reader, source.log_on("publisher") as publisher:
        reader.send({"c": "subscribe", "cid": "1", "t": "orders", "bm": "0"})
        body = b'{"n":%d}' % sequence
        publisher.send({"c": "publish", "t": "orders", "s": sequence, "a": "persisted"}, body)
        while reader.receive()[1] != body:
            pass
        assert publisher.receive_header()["status"] == "success"


@pytest.mark.parametrize("strict", [("one",), ("two",), ("one", "two")])
def test_a_destination_is_served_over_a_connection_whose_certificate_was_verified(
    tmp_path: Path, authorities: tuple[Authority, Authority], strict: tuple[str, ...]
) -> None:
    """Nobody asks for certificates who is connected to, so an instance makes its own connection."""
    authority, ports = authorities[0], {"one": free_port(), "two": free_port()}
    listening, going = [], []
    for name, other in (("one", "two"), ("two", "one")):
        certificate, key = authority.issue(f"{name}.example.com")
        own = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        listening.append(LISTENING.format(kind=SECURE, port=ports[name], elements=own))
        verifying = VERIFYING.format(authority.file) if name in strict else ""
        going.append(to(ports[other], kind=SECURE, elements=verifying))
    with two_servers(tmp_path, (listening[0], listening[1]), (going[0], going[1])) as (one, two):
        for sequence in (1, 2):
            get_across(one, two, 2 * sequence - 1)
            get_across(two, one, 2 * sequence)
        assert "1E-0001" not in one.log() + two.log()


SHORTFALLS = {
    "not encrypted": ("amps-replication", "", "it is not encrypted, and a connection to the"),
    "not asked for": (SECURE, "", "no certificate was asked for, and that of the destination"),
    "of somebody else": (SECURE, "unknown", "certificates were accepted of authorities that the"),
}


@pytest.mark.parametrize(("kind", "asked", "why"), SHORTFALLS.values(), ids=SHORTFALLS)
def test_an_instance_without_a_good_certificate_is_sent_nothing_over_its_own_connection(
    tmp_path: Path, authorities: tuple[Authority, Authority], kind: str, asked: str, why: str
) -> None:
    """Its messages are taken, as the transport where it connects has it."""
    known, unknown = authorities
    ports = free_port(), free_port()
    good, bad = (
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        for certificate, key in (known.issue("one.example.com"), unknown.issue("two.example.com"))
    )
    asking = VERIFYING.format(unknown.file) if asked else ""
    takes = good + asking if kind == SECURE else ""
    listening = (
        LISTENING.format(kind=kind, port=ports[0], elements=takes),
        LISTENING.format(kind=SECURE, port=ports[1], elements=bad),
    )
    going = (
        to(ports[1], kind=SECURE, elements=VERIFYING.format(known.file)),
        to(ports[0], kind=kind, elements=bad if kind == SECURE else ""),
    )
    with two_servers(tmp_path, listening, going) as (one, two):
        said = "1E-0020 one replicates nothing to its destination two over the connection of two at"
        assert one.logs(said), one.log()
        assert one.logs(why)
        assert one.logs(f"destination two cannot be reached at 127.0.0.1:{ports[1]}: certificate")
        get_across(two, one, 1)
        with one.log_on("publisher") as publisher, two.log_on("reader") as reader:
            reader.send({"c": "subscribe", "cid": "1", "t": "orders", "bm": "0"})
            publisher.send({"c": "publish", "t": "orders", "s": 2}, b"secret")
            get_across(two, one, 3)
            assert [reader.receive()[1] for _ in range(2)] == [b'{"n":1}', b'{"n":3}']
            assert reader.hears_nothing()


def test_a_destination_without_an_address_wants_a_certificate_of_who_connects(
    tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    known = authorities[0]
    port = free_port()
    listening = (
        LISTENING.format(kind=SECURE, port=port, elements=secured(known, known, "one.example.com")),
        LISTENING.format(kind="amps-replication", port=free_port(), elements=""),
    )
    going = (
        to(kind=SECURE, elements=VERIFYING.format(known.file)),
        to(port, kind=SECURE, elements=secured(known, known, "two.example.com")),
    )
    with two_servers(tmp_path, listening, going) as (one, two):
        get_across(one, two, 1)
        get_across(two, one, 2)
        assert "1E-0020" not in one.log()


def test_a_host_that_is_not_known_is_said(tmp_path: Path) -> None:
    nowhere = "<InetAddr>nowhere.invalid:9000</InetAddr>"
    with (
        Listening() as address,
        replicating(tmp_path, to(elements=nowhere), to(address.port)) as server,
    ):
        meet(address.accept())
        assert server.logs('unable to resolve specified InetAddr: "nowhere.invalid:9000"')


def test_a_destination_that_speaks_tls_is_not_reached_without(
    tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    port, known = free_port(), authorities[0]
    (tmp_path / "peer").mkdir()
    (tmp_path / "source").mkdir()
    listening = LISTENING.format(
        kind="amps-replication-secure",
        port=port,
        elements=secured(known, known, "peer.example.com"),
    )
    with (
        named_server(tmp_path / "peer", "peer", f"{LOG}<Group>peers</Group>", listening) as peer,
        named_server(tmp_path / "source", "source", destination(to(port))) as source,
    ):
        assert source.logs("the connection was closed before the handshake")
        assert peer.logs("11-0008 Transport[replication] refused a TLS handshake")


SWITCHED = """
<Actions>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
    <Do>
      <Module>amps-action-do-disable-transport</Module>
      <Options><Transport>replication</Transport></Options>
    </Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR2</Signal></Options></On>
    <Do>
      <Module>amps-action-do-enable-transport</Module>
      <Options><Transport>replication</Transport></Options>
    </Do>
  </Action>
</Actions>
"""


def test_a_transport_that_is_disabled_ends_its_links(tmp_path: Path) -> None:
    port = free_port()
    transport = LISTENING.format(kind="amps-replication", port=port, elements="")
    with running_server(tmp_path, elements=LOG + SWITCHED, transports=transport) as server:
        with ReplicationPeer(port) as peer:
            peer.greet()
            assert peer.receive().kind == HELLO
            server.process.send_signal(signal.SIGUSR1)
            assert peer.is_disconnected()
        assert server.logs("Transport[replication] closed")
        server.process.send_signal(signal.SIGUSR2)
        assert server.logs("Transport[replication] listening", times=2)
        with ReplicationPeer(port) as peer:
            peer.greet()
            assert peer.receive().kind == HELLO


def test_a_transport_without_a_log_stays_closed(tmp_path: Path) -> None:
    port = free_port()
    transport = LISTENING.format(kind="amps-replication", port=port, elements="")
    with running_server(tmp_path, transports=transport) as server:
        assert server.logs("there is no TransactionLog to record the messages: it stays closed")
        with pytest.raises(ConnectionRefusedError):
            ReplicationPeer(port)


def test_a_start_fails_without_the_authority_of_a_destination(tmp_path: Path) -> None:
    verified = "<VerifyClient>true</VerifyClient><CAFile>absent.pem</CAFile>"
    elements = destination(to(1, kind="amps-replication-secure", elements=verified))
    with pytest.raises(ServerEnded) as failure, running_server(tmp_path, elements=elements):
        pass
    why = "connections to peer cannot be secured: certificate authority absent.pem: No such file"
    assert why in str(failure.value)
