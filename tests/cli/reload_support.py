"""What tests of `amps-ctl reload` have in common: edits of the configuration, and their outcome."""

from __future__ import annotations

from pathlib import Path

from tests.admin.support import Admin
from tests.cli.test_ctl import ctl
from tests.support.server import RunningServer


def edit(admin: Admin, old: str, new: str) -> None:
    """Replace a text in the configuration, where it has to be."""
    path = configuration(admin.server)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def configuration(server: RunningServer) -> Path:
    """The file."""
    return server.log_file.with_name("config.xml")


def running(admin: Admin) -> str:
    """The configuration that the instance says it runs."""
    return admin.ask("/amps/instance/config.xml").text


def reloaded(admin: Admin) -> list[str]:
    """What a reload says that is done; its last line counts the differences."""
    done = ctl(admin, "reload")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def refused(admin: Admin) -> str:
    """Why a reload is refused, which a dry run says as well; nothing has changed."""
    before = running(admin)
    tries = [ctl(admin, "reload", *words) for words in ((), ("--dry-run",))]
    assert [(done.returncode, done.stdout) for done in tries] == [(1, ""), (1, "")]
    assert tries[0].stderr == tries[1].stderr
    assert running(admin) == before
    return tries[0].stderr
