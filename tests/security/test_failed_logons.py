"""Who guesses passwords is slowed down, whichever module is asked for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from server.security.authentication import (
    Admission,
    ImmediateAuthenticator,
    LogonCredentials,
    LogonOrigin,
)
from server.security.deferred import AnswerFuture, AnswerOrFuture
from server.security.failed_logons import (
    ADDRESS_FAILURE_LIMITS,
    FAILURE_LIFETIME_S,
    MAX_PENDING_LOGONS_PER_ADDRESS,
    MAX_TRACKED_FAILURES,
    USER_FAILURE_LIMITS,
    FailedLogons,
    ThrottledAuthenticator,
)
from tests.engine.support import RecordingLog
from tests.security.users import MODULES, may_log_on, try_to_log_on, write_users
from tests.support.server import RunningServer, running_server
from tests.support.waiting import comes_true

HERE = "10.0.0.1"
DOOR = """
from server.security.authentication import Admission

class Door:
    async def authenticate(self, credentials, previous):
        if credentials.password == "outage":
            raise OSError("nobody answers")
        return Admission(credentials.password == "good", credentials.user, "")

def create_authentication(name, options):
    return Door()
"""
CUSTOM = """
<Modules><Module><Name>door</Name><Library>./door.py</Library></Module></Modules>
<Authentication><Module>door</Module></Authentication>
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock: Clock) -> FailedLogons:
    return FailedLogons(clock)


def fail(failures: FailedLogons, times: int, user: str = "ann", address: str = HERE) -> None:
    for _ in range(times):
        failures.record_failure(address, user)


def test_some_failures_have_no_consequence(failures: FailedLogons) -> None:
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff)
    assert failures.remaining_backoff_s(HERE, "ann") == 0


def test_the_time_doubles_with_each_further_failure(failures: FailedLogons) -> None:
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff)
    waits = [failures.record_failure(HERE, "ann")[1] for _ in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert failures.remaining_backoff_s(HERE, "ann") == 60
    assert (
        failures.remaining_backoff_s(HERE, "bob")
        == failures.remaining_backoff_s("10.0.0.2", "ann")
        == 0
    )


def test_the_time_passes(failures: FailedLogons, clock: Clock) -> None:
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff + 3)
    clock.now = 3.0
    assert failures.remaining_backoff_s(HERE, "ann") == 1
    clock.now = 4.0
    assert failures.remaining_backoff_s(HERE, "ann") == 0


def test_failures_are_forgiven_and_forgotten(failures: FailedLogons, clock: Clock) -> None:
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff)
    failures.record_success(HERE, "ann")
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff)
    assert failures.remaining_backoff_s(HERE, "ann") == 0
    clock.now = FAILURE_LIFETIME_S + 1
    fail(failures, 1)
    assert failures.remaining_backoff_s(HERE, "ann") == 0


def test_many_users_from_one_address_wait_together(failures: FailedLogons) -> None:
    for number in range(ADDRESS_FAILURE_LIMITS.failures_before_backoff):
        fail(failures, 1, f"user {number}")
    failures.record_success(HERE, "user 1")
    assert failures.remaining_backoff_s(HERE, "anybody") == 0
    assert failures.record_failure(HERE, "one more") == (
        ADDRESS_FAILURE_LIMITS.failures_before_backoff + 1,
        1,
    )
    assert failures.remaining_backoff_s(HERE, "anybody") == 1
    assert failures.remaining_backoff_s("10.0.0.2", "anybody") == 0


def test_those_who_give_no_name_are_not_one_user(failures: FailedLogons) -> None:
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff + 5, "")
    assert failures.remaining_backoff_s(HERE, "") == 0
    fail(failures, ADDRESS_FAILURE_LIMITS.failures_before_backoff, "")
    assert failures.remaining_backoff_s(HERE, "") > 0


def test_what_is_remembered_has_a_bound(failures: FailedLogons) -> None:
    fail(failures, USER_FAILURE_LIMITS.failures_before_backoff + 1)
    for number in range(MAX_TRACKED_FAILURES):
        fail(failures, 1, "ann", f"address {number}")
    assert failures.remaining_backoff_s(HERE, "ann") == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    write_users(tmp_path)
    with running_server(tmp_path, elements=MODULES) as running:
        yield running


def test_a_guesser_is_refused_also_with_the_right_password(server: RunningServer) -> None:
    for number in range(USER_FAILURE_LIMITS.failures_before_backoff + 4):
        if not server.log().count("25-0063"):
            assert not may_log_on(server, "ann", f"guess {number}")
    assert server.logs("logons of user 'ann' from 127.0.0.1 are refused for 1 s, after 10 failed")
    for number in range(3):  # each makes it longer, once it is not refused
        assert comes_true(lambda: "try again" not in refusal(server, f"more {number}"))  # noqa: B023 - waited for at once
    assert "too many failed logons: try again in " in refusal(server, "ann")
    assert may_log_on(server, "bob", "bob")
    assert comes_true(lambda: may_log_on(server, "ann", "ann"))
    assert not may_log_on(server, "ann", "guess")
    assert may_log_on(server, "ann", "ann")


def refusal(server: RunningServer, password: str) -> str:
    with server.connect() as peer:
        return str(try_to_log_on(peer, "ann", password).get("detail", ""))


def test_a_module_that_cannot_decide_is_no_failure_of_the_user(tmp_path: Path) -> None:
    """Nor is a logon without a password, or a command before one."""
    (tmp_path / "door.py").write_text(DOOR)
    with running_server(tmp_path, elements=CUSTOM) as server:
        for password in ("outage", ""):
            for _ in range(USER_FAILURE_LIMITS.failures_before_backoff + 3):
                assert not may_log_on(server, "ann", password)
        assert may_log_on(server, "ann", "good")
        for _ in range(USER_FAILURE_LIMITS.failures_before_backoff + 1):
            assert not may_log_on(server, "ann", "bad")
        assert server.logs("25-0063")


def test_who_asks_for_no_password_counts_nothing(tmp_path: Path) -> None:
    module = "<Module>amps-default-no-authentication-module</Module>"
    elements = f"<Authentication>{module}</Authentication>"
    with running_server(tmp_path, elements=elements) as server:
        for _ in range(USER_FAILURE_LIMITS.failures_before_backoff + 3):
            assert refusal(server, "x") == "no user may log on, 'ann' included"


class Door(ImmediateAuthenticator):
    """Knows one password."""

    def authenticate(self, credentials: LogonCredentials) -> Admission:
        return Admission(credentials.password == "good", credentials.user, "")


def test_failures_before_a_logon_that_succeeds_do_not_count(failures: FailedLogons) -> None:
    guarded = ThrottledAuthenticator(Door(), failures, RecordingLog())
    some = ["bad"] * USER_FAILURE_LIMITS.failures_before_backoff
    for password in (*some, "good", *some, "good"):
        credentials = LogonCredentials("ann", password, explicit=True)
        admission = guarded.begin_logon().authenticate(credentials)
        assert isinstance(admission, Admission)
        assert admission.granted == (password == "good")


def test_logons_of_one_address_do_not_take_all_places() -> None:
    """Others log on while those of one address wait; what has been decided makes room."""
    pending: list[AnswerFuture[Admission]] = []

    class Slow:
        def begin_logon(self) -> Self:
            return self

        def begin_scram(self, user: str, channel_binding: bytes) -> None:
            pass

        def forget(self) -> None:
            pass

        def authenticate(self, credentials: LogonCredentials) -> AnswerFuture[Admission]:
            pending.append(AnswerFuture())
            return pending[-1]

    guarded = ThrottledAuthenticator(Slow(), FailedLogons(), RecordingLog())

    def step(address: str) -> AnswerOrFuture[Admission]:
        shown = LogonCredentials("ann", "x", explicit=True, origin=LogonOrigin(address=address))
        return guarded.begin_logon().authenticate(shown)

    for number in range(MAX_PENDING_LOGONS_PER_ADDRESS):
        assert isinstance(step(f"{HERE}:{number}"), AnswerFuture)
    refused = step(f"{HERE}:1")
    assert isinstance(refused, Admission)
    assert refused.reason == "too many logons at a time: try again"
    assert isinstance(step("10.0.0.2:1"), AnswerFuture)
    pending[0].set_result(Admission(True, "ann", ""))
    assert isinstance(step(f"{HERE}:1"), AnswerFuture)
