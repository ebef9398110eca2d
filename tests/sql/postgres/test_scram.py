"""SCRAM-SHA-256: the example of RFC 7677, what goes wrong, and stored verifiers."""

from __future__ import annotations

import base64

import pytest

from server.sql.postgres.messages import ProtocolViolationError
from server.sql.postgres.scram import (
    ScramExchange,
    ScramRefusedError,
    make_verifier,
    read_verifier,
    verifier_of,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(password: str = "pencil") -> ScramExchange:
    return ScramExchange(make_verifier(password, SALT), NONCE)


def test_the_example_of_the_standard() -> None:
    scram = exchange()
    assert scram.challenge(FIRST) == CHALLENGE
    assert scram.finish(FINAL) == SIGNATURE


def test_another_password_is_refused() -> None:
    scram = exchange("pen")
    scram.challenge(FIRST)
    with pytest.raises(ScramRefusedError):
        scram.finish(FINAL)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"\xff",
        b"x,,n=,r=a",
        b"n,,n=,r=",
        b"n,,n=,r=a\xc3\xa9",
        b"n,,m=1,n=,r=a",
        b"p=tls-server-end-point,,n=,r=abc",
        b"n,a=eve,n=,r=abc",
        b"n,,n=,r=" + b"a" * 5000,
    ],
)
def test_malformed_first_messages(first: bytes) -> None:
    with pytest.raises(ProtocolViolationError):
        exchange().challenge(first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL.replace(b"biws", b"eSws"),  # another header than in the first message
        FINAL.replace(b"k0,", b"k1,"),
        FINAL[:-4],
        FINAL + b",x=1",
        FINAL.replace(b"p=dHzb", b"p=dH*b"),
    ],
)
def test_malformed_final_messages(final: bytes) -> None:
    scram = exchange()
    scram.challenge(FIRST)
    with pytest.raises(ProtocolViolationError):
        scram.finish(final)


def test_a_final_message_without_a_first_one() -> None:
    with pytest.raises(ProtocolViolationError):
        exchange().finish(FINAL)


def test_stored_verifiers() -> None:
    verifier = make_verifier("pencil", SALT)
    stored, server = (base64.b64encode(key).decode() for key in verifier[2:])
    text = f"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==${stored}:{server}"
    assert read_verifier(text) == verifier == verifier_of(text, "user", b"")
    assert read_verifier(text[:-1]) is None
    assert read_verifier(text.replace("4096", "99999999")) is None
    assert read_verifier("pencil") is None
    assert "key" not in repr(verifier)


def test_unknown_users_look_like_known_ones() -> None:
    one, again, other = (verifier_of(None, user, b"key") for user in ("eve", "eve", "adam"))
    assert one.salt == again.salt != other.salt
    assert len(one.salt) == len(make_verifier("x").salt)
    scram = ScramExchange(one, NONCE)
    scram.challenge(FIRST)
    with pytest.raises(ScramRefusedError):
        scram.finish(FINAL)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I\u00adX", "IX"),  # RFC 4013, section 3
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
    ],
)
def test_passwords_are_prepared(one: str, other: str) -> None:
    assert make_verifier(one, SALT) == make_verifier(other, SALT)


@pytest.mark.parametrize("password", ["\u0007é", "\u0627\u0031", "\u00ad"])
def test_prohibited_passwords_are_used_as_they_are(password: str) -> None:
    assert make_verifier(password, SALT) != make_verifier(password + "x", SALT)
