"""LDAP: users of a real directory log on."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import pytest
import trustme

from tests.admin.support import ask
from tests.security.ldap.support import (
    BOTH,
    PEOPLE,
    elements,
    logs_on,
    options_for,
    refusal,
    server_for,
)
from tests.support.directory import (
    ACCOUNT_PASSWORD,
    BASE,
    RunningDirectory,
    needs_slapd,
    running_directory,
)
from tests.support.server import RunningServer, free_port, running_server

KERBEROS_TOKEN: Final = base64.b64encode(
    b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(245)
).decode()


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
        ({"BaseDN": ""}, "LDAP.BaseDN is the place of users"),
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
