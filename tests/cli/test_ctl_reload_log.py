"""`amps-ctl reload`: log targets are added, removed and changed; the interval of statistics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import edit, refused, reloaded
from tests.cli.test_ctl import ctl
from tests.support.waiting import wait_until

END: Final = "</Logging>"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path) as running:
        yield running


def target(path: Path, elements: str = "<Level>info</Level>") -> str:
    """A log file."""
    return f"<Target><Protocol>file</Protocol><FileName>{path}</FileName>{elements}</Target>"


def visit(admin: Admin, name: str) -> None:
    """Have the log say that a client was there."""
    with admin.server.log_on(name):
        pass
    assert admin.server.logs(f"client[{name}] disconnected")


def has(path: Path, text: str) -> bool:
    """Whether a file has a text."""
    return text in path.read_text()


def test_a_target_is_added_changed_and_removed(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "more" / "server.log"
    edit(admin, END, target(file) + END)
    assert reloaded(admin)[0].startswith(f"Logging/Target {file} is added (")
    visit(admin, "first")
    wait_until(lambda: has(file, "client[first] disconnected"))
    admin.comes("/amps/instance/logging/file/2/file_name", str(file))
    found = admin.ask("/amps/instance/findings.json").text
    assert f"logs: {file.parent}" in found
    assert f"backups: {tmp_path / 'backups'}" in found
    edit(admin, target(file), target(file, "<Level>error</Level>"))
    assert "Level: info -> error" in reloaded(admin)[0]
    visit(admin, "second")
    edit(admin, target(file, "<Level>error</Level>"), target(file))
    reloaded(admin)
    visit(admin, "third")
    wait_until(lambda: has(file, "client[third] disconnected"))
    assert not has(file, "second")
    edit(admin, target(file), "")
    reloaded(admin)
    visit(admin, "fourth")
    assert not has(file, "fourth")


def test_the_file_of_a_target_changes(admin: Admin, tmp_path: Path) -> None:
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    edit(admin, END, target(one) + END)
    reloaded(admin)
    edit(
        admin,
        target(one),
        target(two, "<Level>info</Level><RotationThreshold>1MB</RotationThreshold>"),
    )
    reloaded(admin)
    visit(admin, "later")
    wait_until(lambda: has(two, "client[later] disconnected"))
    assert not has(one, "later")
    assert ctl(admin, "log-level", str(two), "error").returncode == 0
    edit(admin, target(two, "<Level>info</Level><RotationThreshold>1MB</RotationThreshold>"), "")
    reloaded(admin)
    assert ctl(admin, "log-level", str(two), "info").returncode == 1
    assert ctl(admin, "log", "rotate").returncode == 0


def test_a_target_that_cannot_be_opened_refuses_all(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "fine.log"
    (tmp_path / "file").write_text("")
    edit(admin, END, target(file) + target(tmp_path / "file" / "log") + END)
    assert "cannot be made" in refused(admin)
    visit(admin, "nobody")
    assert not has(file, "nobody")


def test_the_interval_of_statistics_changes(admin: Admin) -> None:
    edit(admin, "<Interval>1s</Interval>", "<Interval>2s</Interval>")
    assert "Admin/Interval: 1s -> 2s" in reloaded(admin)[0]
    admin.comes("/amps/instance/statistics/interval", "2000")
