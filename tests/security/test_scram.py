"""SCRAM-SHA-256: the example of RFC 7677, malformed messages, channel bindings and verifiers."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.security.scram import (
    ITERATIONS,
    ScramExchange,
    ScramMessageError,
    ScramRefusedError,
    make_verifier,
    mock_verifier,
    read_verifier,
)
from tests.support.chances import examples

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(password: str = "pencil") -> ScramExchange:
    return ScramExchange(make_verifier(password, SALT, 4096), nonce=NONCE)


def test_the_example_of_the_standard() -> None:
    scram = exchange()
    assert scram.make_challenge(FIRST) == CHALLENGE
    assert scram.finish(FINAL) == SIGNATURE


def test_another_password_is_refused() -> None:
    scram = exchange("pen")
    scram.make_challenge(FIRST)
    with pytest.raises(ScramRefusedError):
        scram.finish(FINAL)


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n,,",
        "\udcff",
        "x,,n=,r=a",
        "n,,n=,r=",
        "n,,n=,r=aé",
        "n,,m=1,n=,r=a",
        "p=tls-server-end-point,,n=,r=abc",
        "n,a=eve,n=,r=abc",
        "n,,n=,r=" + "a" * 5000,
    ],
)
def test_malformed_first_messages(first: str) -> None:
    with pytest.raises(ScramMessageError):
        exchange().make_challenge(first)


@pytest.mark.parametrize(
    "final",
    [
        "",
        FINAL.replace("biws", "eSws"),  # another header than in the first message
        FINAL.replace("k0,", "k1,"),
        FINAL[:-4],
        FINAL + ",x=1",
        FINAL.replace("p=dHz", "p=dH*"),
    ],
)
def test_malformed_final_messages(final: str) -> None:
    scram = exchange()
    scram.make_challenge(FIRST)
    with pytest.raises(ScramMessageError):
        scram.finish(final)


def test_a_final_message_without_a_first_one() -> None:
    with pytest.raises(ScramMessageError):
        exchange().finish(FINAL)


BINDING = b"hash of a certificate"


def bound_final(binding: str) -> str:
    """The final message of a client that knows the password, with a channel binding."""
    return FINAL.replace("biws", base64.b64encode(binding.encode()).decode())


def test_channel_bindings() -> None:
    """The client's flag has to fit the offer, and the data have to be those of the certificate."""
    verifier = make_verifier("pencil", SALT, 4096)
    for offered, flag in ((BINDING, "y"), (b"", "p=tls-server-end-point"), (BINDING, "p=tls-x")):
        with pytest.raises(ScramMessageError, match="channel"):
            ScramExchange(verifier, offered).make_challenge(FIRST.replace("n,,", f"{flag},,"))
    for data, error in (("hash of a certificate", ScramRefusedError), ("x", ScramMessageError)):
        scram = ScramExchange(verifier, BINDING, NONCE)
        scram.make_challenge(FIRST.replace("n,,", "p=tls-server-end-point,,"))
        with pytest.raises(error):  # the proof is for another final message
            scram.finish(bound_final(f"p=tls-server-end-point,,{data}"))
    for offered, flag in ((BINDING, "n"), (b"", "n"), (b"", "y")):
        ScramExchange(verifier, offered).make_challenge(FIRST.replace("n,,", f"{flag},,"))


def test_stored_verifiers() -> None:
    verifier = make_verifier("pencil", SALT, 4096)
    text = str(verifier)
    assert text.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert read_verifier(text) == verifier
    assert read_verifier(text[:-1]) is None
    assert read_verifier(text.replace("W22", "é22")) is None
    assert read_verifier(text.replace("4096", "99999999")) is None
    assert read_verifier("pencil") is None
    assert "key" not in repr(verifier)


def test_mock_verifiers_look_like_others() -> None:
    one, again, other = (mock_verifier(user, ITERATIONS) for user in ("eve", "eve", "adam"))
    assert one.salt == again.salt != other.salt
    assert len(one.salt) == len(make_verifier("x").salt)
    scram = ScramExchange(one, nonce=NONCE)
    scram.make_challenge(FIRST)
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


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 3), st.text(max_size=3)), min_size=1, max_size=3
)
PIECES = ["n,,", "y,,", "p=tls-server-end-point,,", "n=", "r=", "c=biws", "p=", "m=x", NONCE, ","]
MESSAGES = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.just(FIRST),
    st.just(FINAL),
)


def mutated(message: str, mutations: list[tuple[int, int, str]]) -> str:
    """A message of which some characters are replaced, removed or inserted."""
    for place, removed, inserted in mutations:
        place %= len(message) + 1
        message = message[:place] + inserted + message[place + removed :]
    return message


@settings(max_examples=examples(2000, 80), deadline=None)
@given(first=MESSAGES, final=MESSAGES, mutations=MUTATIONS, binding=st.booleans())
def test_only_the_right_proof_is_accepted(
    first: str, final: str, mutations: list[tuple[int, int, str]], binding: bool
) -> None:
    """Any other message is refused by an error of its own, in either step."""
    verifier = make_verifier("pencil", SALT, 4096)
    for begin, end in ((first, mutated(final, mutations)), (mutated(first, mutations), final)):
        scram = ScramExchange(verifier, BINDING if binding else b"", NONCE)
        try:
            scram.make_challenge(begin)
            scram.finish(end)
        except (ScramMessageError, ScramRefusedError):
            continue
        assert end == FINAL
        assert begin == FIRST
