"""Delays, limits and the choice of servers, in simulated time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.client import (
    AuthenticationError,
    Backoff,
    ClientError,
    ConnectError,
    GaveUpError,
    InvalidUriError,
    NameInUseError,
    Server,
    ServerChooser,
    parse_uri,
)
from amperage.client.reconnection import Reconnection
from amperage.client.servers import ServerOrder

A, B, C = "tcp://a:1/amps", "tcp://b:1/amps", "tcp://c:1/amps"
REFUSED = ConnectError("connection refused")


def test_delays_grow_by_the_factor_to_the_longest() -> None:
    backoff = Backoff(first=1, factor=3, longest=20, jitter=0)
    assert [backoff.delay(rounds, 0.5) for rounds in range(6)] == [0, 1, 3, 9, 20, 20]


@given(rounds=st.integers(0, 10_000), chance=st.floats(0, 1), jitter=st.floats(0, 1))
def test_chance_shortens_a_delay_by_its_share_at_most(
    rounds: int, chance: float, jitter: float
) -> None:
    exact = Backoff(jitter=0).delay(rounds, chance)
    delay = Backoff(jitter=jitter).delay(rounds, chance)
    assert exact * (1 - jitter) <= delay * (1 + 1e-9)
    assert delay <= exact <= 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first": 5, "longest": 1}, "first is 5, expected 0 to longest"),
        ({"factor": 0.5}, "factor is 0.5"),
        ({"jitter": 2}, "jitter is 2"),
        ({"attempts": 0}, "attempts is 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backoff(**arguments)


def hosts(plan: Reconnection, errors: list[ClientError | None], limit: float = 1e6) -> list[str]:
    """Make attempts with these results, one after the other; give their times and hosts."""
    now, made = 0.0, []
    for error in errors:
        delay = plan.seconds_until_due(now)
        now += delay
        made.append(f"{now:g}{plan.server.uri.host}")
        if error is None:
            plan.record_success()
            plan.record_session_end()
        else:
            plan.record_failure(now, error)
        assert now < limit
    return made


def plan(*servers: str, order: ServerOrder = "round_robin", **limits: float) -> Reconnection:
    chooser = ServerChooser(servers, order)
    attempts = limits.get("attempts")
    backoff = Backoff(
        first=1,
        jitter=0,
        longest=8,
        attempts=None if attempts is None else int(attempts),
        seconds=limits.get("seconds"),
    )
    return Reconnection(chooser, backoff, lambda: 0.5)


def test_every_server_is_tried_before_there_is_a_delay() -> None:
    made = hosts(plan(A, B), [REFUSED] * 7)
    assert made == ["0a", "0b", "1a", "1b", "3a", "3b", "7a"]


def test_a_round_robin_goes_on_behind_the_server_that_was_lost() -> None:
    made = hosts(plan(A, B, C), [None, None, REFUSED, None, REFUSED, None])
    assert made == ["0a", "0b", "0c", "0a", "0b", "0c"]


def test_in_order_the_first_server_is_preferred() -> None:
    made = hosts(plan(A, B, C, order="in_order"), [None, REFUSED, None, REFUSED, REFUSED, None])
    assert made == ["0a", "0a", "0b", "0a", "0b", "0c"]


def test_delays_begin_anew_after_a_success() -> None:
    made = hosts(plan(A), [REFUSED, REFUSED, REFUSED, None, REFUSED, REFUSED])
    assert made == ["0a", "1a", "3a", "7a", "7a", "8a"]


def test_attempts_end_after_their_number() -> None:
    limited = plan(A, B, attempts=3)
    assert hosts(limited, [REFUSED] * 3) == ["0a", "0b", "1a"]
    with pytest.raises(GaveUpError, match="in 3 attempts; the last: connection refused"):
        limited.seconds_until_due(1)
    limited.restart()
    assert limited.seconds_until_due(2) == 0


def test_attempts_end_after_their_time() -> None:
    limited = plan(A, seconds=5)
    hosts(limited, [REFUSED] * 3)
    with pytest.raises(GaveUpError):
        limited.seconds_until_due(7)


def test_a_server_that_refuses_the_logon_is_left_out() -> None:
    refused = AuthenticationError("logon", "auth failure")
    picky = plan(A, B)
    assert hosts(picky, [refused, REFUSED, None]) == ["0a", "0b", "1b"]
    picky.record_failure(1, refused)
    with pytest.raises(GaveUpError, match="every server has refused the logon"):
        picky.seconds_until_due(1)


def test_a_name_in_use_may_be_our_own_and_is_waited_for() -> None:
    error = NameInUseError("logon", "name in use")
    assert hosts(plan(A), [error, error, None]) == ["0a", "1a", "3a"]


def test_servers_are_given_as_texts_uris_or_with_an_authenticator() -> None:
    where = Server(parse_uri(C))
    chooser = ServerChooser([A, parse_uri(B), where])
    assert chooser.current == Server(parse_uri(A))
    chooser.failed()
    chooser.failed()
    assert chooser.current is where


def test_a_list_of_servers_is_checked_at_once() -> None:
    with pytest.raises(ValueError, match="at least one server"):
        ServerChooser([])
    with pytest.raises(InvalidUriError):
        ServerChooser(["a:1"])
