"""Kerberos: logons with tickets of a real KDC, and what is no ticket."""

from __future__ import annotations

import base64
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.admin.support import ask
from tests.security.kerberos.support import Ticket, refused, server_for, token
from tests.support.realm import REALM, Realm, needs_kdc, running_realm
from tests.support.server import RunningServer, free_port

pytestmark = needs_kdc


@pytest.mark.parametrize("form", ["kerberos", "spnego"])
def test_a_logon_with_a_ticket(server: RunningServer, ann: dict[str, str], form: str) -> None:
    """The ack has what proves to the client who the server is."""
    ticket = Ticket(ann, form=form)
    with server.connect() as peer:
        ack = peer.log_on(user_id="", pw=ticket.token)
        assert ack["status"] == "success"
        assert ticket.proves(ack["pw"])
        peer.flush()
    assert server.logs("authid           = 'ann'")


def test_a_user_is_who_the_ticket_says(server: RunningServer, ann: dict[str, str]) -> None:
    """Whatever name comes along with it."""
    with server.connect() as peer:
        assert peer.log_on("claims", user_id="bob", pw=token(ann))["status"] == "success"
    assert "authid           = 'bob'" not in server.log()


def test_names_that_are_not_local_stay_whole(
    server: RunningServer, realm: Realm, tmp_path: Path
) -> None:
    admin = realm.kinit("ann/admin", "admin-s3cret", tmp_path / "cache")
    with server.connect() as peer:
        assert peer.log_on(user_id="", pw=token(admin))["status"] == "success"
    assert server.logs(f"authid           = 'ann/admin@{REALM}'")


def test_many_in_a_row(server: RunningServer, ann: dict[str, str]) -> None:
    for _ in range(10):
        with server.connect() as peer:
            assert peer.log_on(user_id="ann", pw=token(ann))["status"] == "success"


@pytest.mark.parametrize(
    ("shown", "logged"),
    [
        ("ann-s3cret", "it is no Kerberos token, encoded as base64"),
        ("hunter22", "it is no Kerberos token"),
        (base64.b64encode(b"NTLMSSP\0\1\0\0\0").decode(), "it is a token of NTLM"),
        (base64.b64encode(b"\x60\x03abc").decode(), "token"),
        (base64.b64encode(b"\x60\x84\xff\xff\xff\xff").decode(), "token"),
        (base64.b64encode(b"\x60\x06\x06\x04" + b"\xff" * 40).decode(), "token"),
        (base64.b64encode(b"\xa1\x03abc").decode(), "token"),
        ("YII" + "A" * 30_001, "token"),
        ("Yé==", "it is no Kerberos token"),
    ],
)
def test_tokens_that_are_none(server: RunningServer, shown: str, logged: str) -> None:
    user = f"user-{len(shown)}"  # the log has ten refusals of one user in a minute
    assert refused(server, shown, user) == "the credentials are not accepted"
    assert server.waits_for(
        lambda log: any("25-0081" in line and logged in line for line in log.splitlines())
    )


def test_tokens_that_are_cut_or_changed(server: RunningServer, ann: dict[str, str]) -> None:
    whole = base64.b64decode(token(ann))
    for size in (1, 2, 10, 20, 100, len(whole) - 1):
        refused(server, base64.b64encode(whole[:size]).decode())
    for place in (5, 200, 300, len(whole) - 3):
        changed = bytearray(whole)
        changed[place] ^= 0x55
        refused(server, base64.b64encode(changed).decode())
    with server.connect() as peer:
        assert peer.log_on(user_id="", pw=token(ann))["status"] == "success"


def test_a_token_is_good_once(server: RunningServer, ann: dict[str, str]) -> None:
    shown = token(ann)
    with server.connect() as peer:
        assert peer.log_on(user_id="", pw=shown)["status"] == "success"
    assert refused(server, shown, "twice") == "the credentials are not accepted"
    assert server.logs("Request is a replay")


def test_tokens_for_another_service(
    server: RunningServer, realm: Realm, ann: dict[str, str], tmp_path: Path
) -> None:
    realm.make_keytab("OTHER/localhost", tmp_path / "other.keytab")
    refused(server, token(ann, "OTHER/localhost"))


def short_lived(realm: Realm, cache: Path) -> tuple[dict[str, str], str, int]:
    """The environment of a program of bob's, a token, and the seconds that his ticket lasts.

    It lasts longer where the machine is so busy that it ends before there is a token.
    """
    for seconds in (4, 15, 60):
        variables = realm.kinit("bob", "bob-s3cret", cache, "-l", f"{seconds}s")
        with suppress(AssertionError):
            return variables, token(variables), seconds
    raise AssertionError("a token takes more than a minute")


def test_a_ticket_that_has_expired(server: RunningServer, realm: Realm, tmp_path: Path) -> None:
    short, shown, seconds = short_lived(realm, tmp_path / "cache")
    time.sleep(seconds + 3)  # clocks may differ by 1
    assert refused(server, shown) == "the credentials are not accepted"
    with pytest.raises(AssertionError):
        Ticket(short)


def test_keys_that_have_changed(tmp_path: Path, realm: Realm, ann: dict[str, str]) -> None:
    """The keytab has other keys than the KDC, and then it has the right ones."""
    ports = {"admin": free_port(), "browsers": free_port()}
    keytab = tmp_path / "old.keytab"
    with running_realm(other := _made(tmp_path / "other")) as elsewhere:
        keytab.write_bytes(elsewhere.keytab.read_bytes())
    assert other.is_dir()
    with server_for(tmp_path, realm, ports, keytab) as server:
        refused(server, token(ann))
        keytab.write_bytes(realm.keytab.read_bytes())
        with server.connect() as peer:
            assert peer.log_on(user_id="", pw=token(ann))["status"] == "success"
        keytab.unlink()
        assert "at the moment" in refused(server, token(ann))
        assert server.logs("25-0003")


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_without_a_password(tmp_path: Path, realm: Realm) -> None:
    ports = {"admin": free_port(), "browsers": free_port()}
    more = "<AllowAnonymous>true</AllowAnonymous>"
    with server_for(tmp_path, realm, ports, more=more) as server:
        with server.connect() as peer:
            assert peer.log_on(user_id="ann", pw="")["status"] == "success"
        assert server.logs("authid           = ''")


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content).to_bytes(2, "big")
    return bytes([tag, 0x82]) + length + content


def test_a_client_that_asks_which_mechanism_first(
    server: RunningServer, ports: dict[str, int], ann: dict[str, str]
) -> None:
    """The server says so in a challenge, which over HTTP is one round too many."""
    kerberos = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"
    spnego = b"\x06\x06\x2b\x06\x01\x05\x05\x02"
    offer = _der(0x60, spnego, _der(0xA0, _der(0x30, _der(0xA0, _der(0x30, kerberos)))))
    asks = base64.b64encode(offer).decode()
    ticket = base64.b64decode(token(ann))
    answer = _der(0xA1, _der(0x30, _der(0xA2, _der(0x04, ticket))))
    with server.connect() as peer:
        ack = peer.log_on(user_id="ann", pw=asks)
        assert (ack["status"], ack["user_id"]) == ("retry", "ann")
        assert base64.b64decode(ack["pw"]).startswith(b"\xa1")
        assert peer.log_on(user_id="ann", pw=base64.b64encode(answer).decode())["pw"]
        peer.flush()
    reply = ask(ports["admin"], "/amps.json", authorization=f"Negotiate {asks}")
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Negotiate")
