"""What services ask for before they say anything, read from the headers that say so."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.http_entitlement.challenges import (
    ChallengeError,
    HttpChallenge,
    answer,
    read_challenges,
)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (['Basic realm="a"'], [("basic", {"realm": "a"})]),
        (['BASIC realm="a, b"'], [("basic", {"realm": "a, b"})]),
        (["Negotiate", "Basic realm=x"], [("negotiate", {}), ("basic", {"realm": "x"})]),
        (["Negotiate, Basic realm=x"], [("negotiate", {}), ("basic", {"realm": "x"})]),
        (["Negotiate YII==, Basic"], [("negotiate", {}), ("basic", {})]),
        (
            ['Digest realm="q\\"d", nonce="1,2" , qop="auth,auth-int", Basic realm="x"'],
            [
                ("digest", {"realm": 'q"d', "nonce": "1,2", "qop": "auth,auth-int"}),
                ("basic", {"realm": "x"}),
            ],
        ),
        ([", ,Basic realm = x ,, charset=utf-8"], [("basic", {"realm": "x", "charset": "utf-8"})]),
        (['Basic realm="never ends'], [("basic", {})]),
        (["", '"', "="], []),
    ],
)
def test_challenges_are_read(
    headers: list[str], expected: list[tuple[str, dict[str, str]]]
) -> None:
    assert read_challenges(headers) == [HttpChallenge(*one) for one in expected]


PIECES = st.sampled_from(
    ["Digest ", "Basic", " realm=", '"a"', "nonce=", "qop=", "auth", ",", " ", "="]
)


@given(st.lists(st.one_of(st.text(max_size=20), st.lists(PIECES).map("".join))))
def test_whatever_a_service_says_is_answered_or_not(headers: list[str]) -> None:
    with contextlib.suppress(ChallengeError):
        shown = answer(read_challenges(headers), "ann", "pw", "/x")
        assert shown.startswith(("Basic ", "Digest "))
        assert "\n" not in shown
