"""libamps_multi_authentication with a directory: a real one, and ones that misbehave."""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import trustme

from tests.admin.support import ask
from tests.support.directory import (
    ACCOUNT,
    ACCOUNT_PASSWORD,
    BASE,
    RunningDirectory,
    needs_slapd,
    person,
    running_directory,
)
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server, why_no_start

PEOPLE: Final = (
    person(f"uid=ann,{BASE}", "ann-s3cret", "ann")
    + person(f"uid=bob,{BASE}", "bob-s3cret", "bob")
    + person(f"cn=Odd\\, (One) \\2A,{BASE}", "odd-s3cret", "odd,*(uid=ann)\\")
    + person(f"uid=cyd,{BASE}", "YBs3cret", "cyd")
    + person(f"cn=twin one,{BASE}", "ann-s3cret", "twin")
    + person(f"cn=twin two,{BASE}", "ann-s3cret", "twin")
)
BOTH: Final = "allow bind_v2"

ELEMENTS: Final = """
<Modules>
  <Module><Name>people</Name><Library>libamps_multi_authentication.so</Library>{loading}</Module>
</Modules>
<Authentication>
  <Module>people</Module>
  <Options>{options}</Options>
</Authentication>
{more}
"""

KERBEROS_TOKEN: Final = base64.b64encode(
    b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(245)
).decode()


def elements(options: str, more: str = "", loading: str = "") -> str:
    return ELEMENTS.format(options=options, more=more, loading=loading)


def options_for(port: int, **more: str) -> str:
    """Options of the module, with the service account unless they say otherwise."""
    given = {
        "Host": "127.0.0.1",
        "Port": str(port),
        "BaseDN": BASE,
        "ServiceAccountDN": ACCOUNT,
        "ServiceAccountPasswordFile": "account.txt",
    } | more
    return "".join(f"<LDAP.{name}>{value}</LDAP.{name}>" for name, value in given.items() if value)


@contextmanager
def server_for(
    path: Path, port: int, more: str = "", general: str = "", **options: str
) -> Iterator[RunningServer]:
    (path / "account.txt").write_text(ACCOUNT_PASSWORD + "\n")
    text = elements(options_for(port, **options) + general, more)
    with running_server(path, elements=text, level="trace") as server:
        yield server


def refusal(server: RunningServer, user: str, password: str) -> str:
    """How a client is told that it may not log on."""
    with server.connect() as peer:
        ack = peer.log_on(user_id=user, pw=password)
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert peer.is_disconnected()
        return str(ack["detail"])


def logs_on(server: RunningServer, user: str, password: str) -> bool:
    with server.connect() as peer:
        return bool(peer.log_on(user_id=user, pw=password)["status"] == "success")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDirectory]:
    with running_directory(tmp_path_factory.mktemp("ldap") / "d", PEOPLE, BOTH) as running:
        yield running


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, directory: RunningDirectory
) -> Iterator[RunningServer]:
    with server_for(tmp_path_factory.mktemp("server"), directory.port) as running:
        yield running


@needs_slapd
@pytest.mark.parametrize(
    ("user", "password", "known_as"),
    [
        ("ann", "ann-s3cret", "ann"),
        ("bob", "bob-s3cret", "bob"),
        ("cyd", "YBs3cret", "cyd"),  # base64 of what begins as Kerberos tokens do
        ("ANN", "ann-s3cret", "ann"),
        ("ann ", "ann-s3cret", "ann"),
        ("odd,*(uid=ann)\\", "odd-s3cret", "odd,*(uid=ann)\\"),
    ],
)
def test_users_are_called_what_the_directory_calls_them(
    server: RunningServer, user: str, password: str, known_as: str
) -> None:
    with server.connect() as peer:
        ack = peer.log_on(user_id=user, pw=password)
        assert ack["status"] == "success"
        assert ack.get("user_id", known_as) == known_as
        peer.flush()
    assert server.logs(f"authid           = '{known_as}'")


@needs_slapd
@pytest.mark.parametrize(
    ("user", "password", "logged"),
    [
        ("ann", "wrong-s3cret", "refuses the bind as 'uid=ann,ou=people,dc=example,dc=org': inv"),
        ("", "ann-s3cret", "there is no user name"),
        ("eve", "eve-s3cret", "no entry below 'ou=people,dc=example,dc=org'"),
        ("*", "ann-s3cret", "no entry below"),
        ("ann)(uid=*", "ann-s3cret", "no entry below"),
        ("ann,ou=people", "ann-s3cret", "no entry below"),
        (f"uid=ann,{BASE}", "ann-s3cret", "no entry below"),
        ("twin", "ann-s3cret", "several entries below"),
        ("ann\0", "ann-s3cret", "control characters"),
        ("ann", "\0", "control characters"),
        ("ann", "\0ann-s3cret", "control characters"),
        ("ann", "x" * 1025, "more than 1024 characters"),
        ("ann", KERBEROS_TOKEN, "is a Kerberos token, and the module is configured for LDAP"),
    ],
)
def test_whoever_else_comes_is_refused(
    server: RunningServer, user: str, password: str, logged: str
) -> None:
    assert refusal(server, user, password) == "the credentials are not accepted"
    assert server.waits_for(
        lambda log: any("25-0081" in x and logged in x for x in log.splitlines())
    )
    assert logs_on(server, "ann", "ann-s3cret")


@needs_slapd
def test_passwords_are_in_no_log(server: RunningServer) -> None:
    refusal(server, "ann", "never-s3cret")
    assert logs_on(server, "ann", "ann-s3cret")
    assert "s3cret" not in server.log()


@needs_slapd
def test_guesses_are_slowed_down(tmp_path: Path, directory: RunningDirectory) -> None:
    """Those of passwords; that a directory does not answer is nobody's fault."""
    with server_for(tmp_path, directory.port) as server:
        said = [refusal(server, "ann", f"guess {number}") for number in range(11)]
        assert "too many failed logons" in said[-1]
        assert logs_on(server, "bob", "bob-s3cret")
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    with server_for(nowhere, free_port()) as server:
        said = [refusal(server, "ann", "ann-s3cret") for _ in range(12)]
        assert set(said) == {"the credentials cannot be checked at the moment"}


@needs_slapd
def test_without_credentials_nobody_is_asked(server: RunningServer) -> None:
    for user in ("", "ann"):
        assert refusal(server, user, "") == "a user name and a password are required"
    with server.connect() as peer:
        assert peer.subscribe("t", "1")["reason"] == "auth failure"


@needs_slapd
def test_nobody_in_particular_may_log_on_where_that_is_allowed(
    tmp_path: Path, directory: RunningDirectory
) -> None:
    allowed = "<AllowAnonymous>enabled</AllowAnonymous>"
    with server_for(tmp_path, directory.port, general=allowed) as server:
        with server.connect() as peer:
            assert peer.log_on(user_id="ann", pw="")["status"] == "success"
        assert server.logs("authid           = ''")
        assert not logs_on(server, "ann", "wrong")
        with server.connect() as peer:
            assert peer.subscribe("t", "1")["reason"] == "auth failure"


@needs_slapd
def test_options_where_the_module_is_loaded_are_passed_over(
    tmp_path: Path, directory: RunningDirectory
) -> None:
    """As in AMPS; one of them would let everybody in."""
    loading = "<Options><AllowAnonymous>true</AllowAnonymous></Options>"
    (tmp_path / "account.txt").write_text(ACCOUNT_PASSWORD)
    text = elements(options_for(directory.port), loading=loading)
    with running_server(tmp_path, elements=text) as server:
        assert not logs_on(server, "ann", "")
        assert logs_on(server, "ann", "ann-s3cret")


@needs_slapd
def test_a_directory_that_anybody_may_search(tmp_path: Path) -> None:
    with (
        running_directory(tmp_path / "d", PEOPLE, BOTH, anonymous="read") as directory,
        server_for(
            tmp_path, directory.port, ServiceAccountDN="", ServiceAccountPasswordFile=""
        ) as server,
    ):
        assert logs_on(server, "ann", "ann-s3cret")
        assert not logs_on(server, "ann", "bob-s3cret")


@needs_slapd
def test_version_2_where_only_version_3_is_spoken(tmp_path: Path) -> None:
    """Version 2 is the default, and a directory of today refuses it: the log says what to do."""
    with running_directory(tmp_path / "d", PEOPLE) as directory:
        with server_for(tmp_path, directory.port) as server:
            assert (
                refusal(server, "ann", "ann-s3cret")
                == "the credentials cannot be checked at the moment"
            )
            assert server.logs("protocolError (2)")
            assert server.logs("set LDAP.ProtocolVersion to 3")
        three = tmp_path / "three"
        three.mkdir()
        with server_for(three, directory.port, ProtocolVersion="3") as server:
            assert logs_on(server, "ann", "ann-s3cret")


@needs_slapd
@pytest.mark.parametrize(
    ("options", "logged"),
    [
        (
            {"ServiceAccountDN": "cn=nobody,dc=example,dc=org"},
            "refuses the bind as the service account 'cn=nobody,dc=example,dc=org': invalidCred",
        ),
        ({"ServiceAccountPasswordFile": "missing.txt"}, "missing.txt: No such file"),
        ({"ServiceAccountPasswordFile": "empty.txt"}, "empty.txt: it is empty"),
        ({"BaseDN": ""}, "LDAP.BaseDN says where users are"),
        ({"BaseDN": "ou=nowhere,dc=example,dc=org"}, "ends with noSuchObject (32)"),
        ({"BaseDN": "nonsense"}, "ends with invalidDNSyntax (34)"),
        ({"ServiceAccountDN": "nonsense"}, "invalidDNSyntax (34)"),
    ],
)
def test_a_directory_that_is_asked_wrongly(
    tmp_path: Path, directory: RunningDirectory, options: dict[str, str], logged: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with server_for(tmp_path, directory.port, **options) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs(logged)


@needs_slapd
def test_a_directory_that_comes_and_goes(tmp_path: Path) -> None:
    with (
        running_directory(tmp_path / "d", PEOPLE, BOTH) as directory,
        server_for(tmp_path, directory.port) as server,
    ):
        assert logs_on(server, "ann", "ann-s3cret")
        directory.process.kill()
        directory.process.wait()
        assert "at the moment" in refusal(server, "ann", "ann-s3cret")
        assert server.logs(f"the directory 127.0.0.1:{directory.port} cannot be asked")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@needs_slapd
@pytest.mark.parametrize("encryption", ["starttls", "ldaps"])
def test_encrypted_connections(tmp_path: Path, authority: trustme.CA, encryption: str) -> None:
    """Nobody's password is sent to a directory whose certificate nobody has signed."""
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    tls = f"TLSCertificateFile {tmp_path}/cert.pem\nTLSCertificateKeyFile {tmp_path}/key.pem\n"
    with running_directory(tmp_path / "d", PEOPLE, "security simple_bind=1", tls=tls) as directory:
        port = directory.tls_port if encryption == "ldaps" else directory.port
        given = {"Encryption": encryption, "ProtocolVersion": "3"}
        for name, works in (("ca.pem", True), ("other.pem", False)):
            where = tmp_path / name.partition(".")[0]
            where.mkdir()
            with server_for(where, port, CAFile=f"{tmp_path}/{name}", **given) as server:
                assert logs_on(server, "ann", "ann-s3cret") is works
                if not works:
                    assert server.logs("the certificate of the directory")
        plain = tmp_path / "plain"
        plain.mkdir()
        with server_for(plain, directory.port, ProtocolVersion="3") as server:
            assert not logs_on(server, "ann", "ann-s3cret")
            assert server.logs("confidentialityRequired (13)")


@needs_slapd
def test_basic_in_requests_to_the_admin_interface(
    tmp_path: Path, directory: RunningDirectory
) -> None:
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        '<WWWAuthenticate>Basic realm="x"</WWWAuthenticate></Admin>'
    )
    with server_for(tmp_path, directory.port, admin):
        shown = {
            text: "Basic " + base64.b64encode(text.encode()).decode()
            for text in ("ann:ann-s3cret", "ann:wrong", "ann:", ":")
        }
        assert ask(port, "/amps.json").status == 401
        assert ask(port, "/amps.json", authorization=shown["ann:ann-s3cret"]).status == 200
        for wrong in ("ann:wrong", "ann:", ":"):
            assert ask(port, "/amps.json", authorization=shown[wrong]).status == 401


# --- directories that misbehave ---------------------------------------------------------------

Talk = Callable[[socket.socket], object]


@contextmanager
def misbehaving(talk: Talk) -> Iterator[int]:
    """A directory whose answers are a test's own; its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            talk(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def message(number: int, tag: int, content: bytes) -> bytes:
    inner = bytes([2, 1, number, tag, len(content)]) + content
    return bytes([0x30, len(inner)]) + inner


GOOD: Final = b"\x0a\x01\x00\x04\x00\x04\x00"
ANN: Final = b"\x04\x04cn=a\x30\x0e\x30\x0c\x04\x03uid\x31\x05\x04\x03ann"
NAMELESS: Final = b"\x04\x00" + ANN[6:]


def says(*answers: bytes) -> Talk:
    """Answers requests in turn, whatever they are; then listens until the other end closes."""

    def talk(connection: socket.socket) -> None:
        for answer in answers:
            if not connection.recv(65_536):
                return
            connection.sendall(answer)
        while connection.recv(65_536):
            pass

    return talk


BOUND: Final = message(1, 0x61, GOOD)
DONE: Final = message(2, 0x65, GOOD)


@pytest.mark.parametrize(
    ("talk", "logged"),
    [
        (lambda connection: None, "cannot be asked"),
        (lambda connection: connection.recv(65_536), "has closed the connection"),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "tag 0x48 where a message was expected"),
        (says(b"\x30\x84\x7f\xff\xff\xff"), "a message of 2147483653 bytes"),
        (says(b"\x30\x80"), "a length of another form than LDAP has"),
        (says(b"\x30\x03\x02\x05\x01"), "an element that ends behind what contains it"),
        (says(message(1, 0x65, GOOD)), "tag 0x65, which does not answer what was asked"),
        (says(message(7, 0x61, GOOD)), "message 7 where 1 was expected"),
        (says(message(1, 0x61, b"")), "nothing where tag 0x0a was expected"),
        (says(message(1, 0x61, b"\x0a\x01\x34\x04\x00\x04\x00")), "unavailable (52)"),
        (says(message(0, 0x78, b"\x0a\x01\x34\x04\x00\x04\x00")), "it says goodbye, unavailable"),
        (
            says(message(1, 0x61, b"\x0a\x01\x01\x04\x00\x04\x07a\nb\x1bc\xff\xfe")),
            "operationsError (1), 'a b c\ufffd\ufffd'",
        ),
        (says(BOUND, message(2, 0x64, NAMELESS) + DONE), "gives an entry without a name"),
        (
            says(BOUND, message(2, 0x64, ANN.replace(b"ann", b"bob")) + DONE),
            "does not have the name that was given",
        ),
        (says(BOUND, message(2, 0x64, ANN) * 2 + DONE), "several entries"),
        (says(BOUND, message(2, 0x73, b"\x04\x00") * 40), "more than 32 answers to a search"),
        (says(BOUND, message(2, 0x64, ANN[:-2]) + DONE), "an element that ends behind"),
        (
            says(BOUND, message(2, 0x65, b"\x0a\x01\x0a\x04\x00\x04\x00")),
            "ends with referral (10)",
        ),
        (
            says(
                BOUND,
                message(2, 0x64, ANN) + DONE,
                message(3, 0x61, b"\x0a\x01\x0a\x04\x00\x04\x00"),
            ),
            "answers the bind as 'cn=a' with referral (10)",
        ),
    ],
)
def test_a_directory_that_misbehaves(tmp_path: Path, talk: Talk, logged: str) -> None:
    with misbehaving(talk) as port, server_for(tmp_path, port) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs(logged)
        assert "Traceback" not in server.log()
        assert "s3cret" not in server.log()


def test_a_directory_that_says_yes_to_everything_is_believed(tmp_path: Path) -> None:
    """So that the table above would fail if its answers were wrong in other ways than it says."""
    talk = says(BOUND, message(2, 0x64, ANN) + DONE, message(3, 0x61, GOOD))
    with misbehaving(talk) as port, server_for(tmp_path, port) as server:
        assert logs_on(server, "ann", "ann-s3cret")


@pytest.mark.parametrize(("version", "answer"), [("2", True), ("3", False)])
def test_references_are_passed_over_in_version_2_as_well(
    tmp_path: Path, version: str, answer: bool
) -> None:
    """A search that comes upon some ends with partialResults there; in version 3 that is none."""
    partial = message(2, 0x65, b"\x0a\x01\x09\x04\x00\x04\x00")
    talk = says(BOUND, message(2, 0x64, ANN) + partial, message(3, 0x61, GOOD))
    with (
        misbehaving(talk) as port,
        server_for(tmp_path, port, ProtocolVersion=version) as server,
    ):
        assert logs_on(server, "ann", "ann-s3cret") is answer


def test_encryption_where_none_is_spoken_is_told(tmp_path: Path) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)

    with misbehaving(talk) as port, server_for(tmp_path, port, Encryption="ldaps") as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs("it has ended the connection; LDAP.Encryption ldaps needs a port that")


def test_nothing_that_comes_before_encryption_counts(tmp_path: Path) -> None:
    """Somebody in between could send the answers to come along with that to StartTLS."""
    talk = says(message(1, 0x78, GOOD) + message(2, 0x61, GOOD))
    given = {"Encryption": "starttls", "ProtocolVersion": "3"}
    with misbehaving(talk) as port, server_for(tmp_path, port, **given) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs("bytes behind the answer to StartTLS")


def test_a_directory_that_refuses_encryption_gets_no_password(tmp_path: Path) -> None:
    got = []

    def talk(connection: socket.socket) -> None:
        got.append(connection.recv(65_536))
        connection.sendall(message(1, 0x78, b"\x0a\x01\x02\x04\x00\x04\x00"))
        while data := connection.recv(65_536):
            got.append(data)

    given = {"Encryption": "starttls", "ProtocolVersion": "3"}
    with misbehaving(talk) as port, server_for(tmp_path, port, **given) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs("refuses StartTLS: protocolError (2)")
    assert b"s3cret" not in b"".join(got)


def test_a_directory_that_is_slow_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """Messages go on, and somebody else's logon is decided, while one waits for the directory."""
    waits = threading.Event()

    def talk(connection: socket.socket) -> None:
        waits.set()
        while connection.recv(65_536):
            pass

    with misbehaving(talk) as port:
        other = free_port()
        transport = f"""
        <Transport>
          <Name>open</Name><Type>tcp</Type><InetAddr>127.0.0.1:{other}</InetAddr>
          <Protocol>amps</Protocol>
          <Authentication><Module>amps-default-authentication-module</Module></Authentication>
        </Transport>"""
        (tmp_path / "account.txt").write_text("x")
        with (
            running_server(
                tmp_path, elements=elements(options_for(port)), transports=transport
            ) as server,
            server.connect() as waiting,
        ):
            waiting.send(
                {"c": "logon", "cid": "1", "a": "processed", "mt": "json"}
                | {"user_id": "ann", "pw": "ann-s3cret", "client_name": "w"}
            )
            assert waits.wait(60)
            with RawPeer(other) as quick:
                assert quick.log_on("quick")["status"] == "success"
                quick.flush()
            assert waiting.receive_header()["detail"] == (
                "the credentials cannot be checked at the moment"
            )
            assert server.logs("has not answered within 10 seconds")


# --- configurations ---------------------------------------------------------------------------


HOST: Final = "<LDAP.Host>h</LDAP.Host>"
DEFAULT: Final = "DefaultAuthenticationMechanism"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "LDAP.Host: is missing, and so is Kerberos.SPN: expected either LDAP or Kerberos"),
        ("<LDAP.Port>389</LDAP.Port>", "LDAP.Host: is missing"),
        (
            f"{HOST}<Kerberos.SPN>a/b</Kerberos.SPN><Kerberos.Keytab>k</Kerberos.Keytab>",
            "LDAP.Host: there are options of both: expected either LDAP or Kerberos",
        ),
        (f"{HOST}<LDAP.Prot>3</LDAP.Prot>", "is not an option of"),
        (f"{HOST}<LDAP.Port>0</LDAP.Port>", "expected a number from 1 to 65535"),
        (
            f"{HOST}<LDAP.Port>99999</LDAP.Port>",
            "expected a number from 1 to 65535",
        ),
        (f"{HOST}<LDAP.ProtocolVersion>4</LDAP.ProtocolVersion>", "expected"),
        (f"{HOST}<AllowAnonymous>perhaps</AllowAnonymous>", "expected"),
        (
            f"{HOST}<LDAP.Encryption>starttls</LDAP.Encryption>",
            "LDAP.Encryption: starttls needs LDAP.ProtocolVersion 3",
        ),
        (
            f"{HOST}<LDAP.Encryption>ldaps</LDAP.Encryption><LDAP.CAFile>missing.pem</LDAP.CAFile>",
            "LDAP.CAFile missing.pem: No such file",
        ),
        ("<LDAP.Host>ldap://h:1</LDAP.Host>", "LDAP.Host: is ldap://h:1: expected a name"),
        (
            f"{HOST}<LDAP.UserAttribute>a)(b</LDAP.UserAttribute>",
            "LDAP.UserAttribute: is a)(b: expected a name such as uid",
        ),
        (f"{HOST}<LDAP.Encryption>tls</LDAP.Encryption>", "tls"),
        (
            f"{HOST}<LDAP.Encryption>ldaps</LDAP.Encryption><LDAP.CAFile>pipe</LDAP.CAFile>",
            "LDAP.CAFile pipe: it is a pipe and no file",
        ),
        (
            "<Kerberos.SPN>a/b</Kerberos.SPN><Kerberos.Keytab>pipe</Kerberos.Keytab>",
            "it is a pipe and no file",
        ),
        (
            f"{HOST}<Kerberos.Keytab>k</Kerberos.Keytab>",
            "LDAP.Host: there are options of both",
        ),
        (
            f"{HOST}<{DEFAULT}>Kerberos</{DEFAULT}>",
            "DefaultAuthenticationMechanism: is Kerberos, and the module is configured for LDAP",
        ),
        ("<Kerberos.SPN>a/b</Kerberos.SPN>", "Kerberos.Keytab: is missing"),
        (
            "<Kerberos.SPN>a/b</Kerberos.SPN><Kerberos.Keytab>no.keytab</Kerberos.Keytab>",
            "Kerberos.Keytab no.keytab: no keys of a/b",
        ),
    ],
)
def test_options_that_cannot_be_used(tmp_path: Path, options: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = why_no_start(tmp_path, elements(options))
    assert said in found
    assert "config.xml:" in found
