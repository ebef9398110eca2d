"""`amps-ctl log-level`: the level of a log target, for a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.test_ctl import ctl, results
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("levels")) as running:
        yield running


def is_traced(admin: Admin, name: str) -> bool:
    """Whether the commands of a client that connects now are in the log."""
    with admin.server.log_on(name) as peer:
        peer.ask({"c": "subscribe", "t": "orders", "a": "processed", "cid": "1"})
    assert admin.server.logs(f"client[{name}] disconnected")
    return any("12-0002" in line and f"client[{name}]" in line for line in lines(admin))


def lines(admin: Admin) -> list[str]:
    """The lines of the log."""
    return admin.server.log().splitlines()


def test_a_level_lasts_until_it_is_ended(admin: Admin) -> None:
    assert not is_traced(admin, "before")
    done = ctl(admin, "log-level", "stdout", "trace", "--for", "1h")
    assert (done.returncode, done.stdout) == (0, "stdout has the level trace for 3600 s.\n")
    assert admin.server.logs("/amps/administrator/logging/targets/1/level.json for level=trace,")
    admin.comes("/amps/instance/logging/console/1/log_levels", "trace")
    assert is_traced(admin, "meanwhile")
    assert ctl(admin, "log-level", "1", "configured").returncode == 0
    assert admin.server.logs("2C-0003 ")
    assert not is_traced(admin, "afterwards")
    admin.comes("/amps/instance/logging/console/1/log_levels", "info")


def test_a_level_ends_by_itself(admin: Admin) -> None:
    ended = admin.server.log().count("2C-0003 ")
    assert ctl(admin, "log-level", "1", "trace", "--for", "1h").returncode == 0
    assert ctl(admin, "log-level", "1", "trace", "--for", "200ms").returncode == 0, "it replaces"
    wait_until(lambda: admin.server.log().count("2C-0003 ") == ended + 1)
    assert not is_traced(admin, "later")


def test_a_level_of_some_messages(admin: Admin) -> None:
    assert ctl(admin, "log-level", "1", "trace", "--message", "12-0002").returncode == 0
    assert is_traced(admin, "one kind")
    entries = [line.split() for line in lines(admin) if "client[one kind]" in line]
    assert [entry[3] for entry in entries if entry[2] == "trace:"] == ["12-0002"]
    assert "14-0001" in [entry[3] for entry in entries], "others are as configured"
    done = ctl(admin, "log-level", "1", "none", "--message", "^14-", "--json")
    assert results(done)[0]["result"] == "stdout has the level none for ^14- for 600 s."
    assert not is_traced(admin, "no kind")
    assert not any("14-" in line for line in lines(admin) if "client[no kind]" in line)
    assert ctl(admin, "log-level", "1", "configured").returncode == 0


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("log-level nowhere trace", 1, "there is no target 'nowhere'; there are 1"),
        ("log-level 1 loud", 2, "invalid choice"),
        ("log-level 1 trace --for long", 1, "an interval"),
        ("log-level 1 trace --message (", 1, "cannot be set"),
    ],
)
def test_a_level_that_cannot_be_set_changes_nothing(
    admin: Admin, words: str, status: int, reason: str
) -> None:
    done = ctl(admin, *words.split())
    assert (done.returncode, reason in done.stderr) == (status, True), done.stderr
    assert not is_traced(admin, f"unchanged {status} {reason[:4]}")
