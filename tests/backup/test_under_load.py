"""Backups that are made while clients publish, write records and consume a queue."""

from __future__ import annotations

from pathlib import Path

from tests.backup.support import (
    KEYS,
    Clients,
    Content,
    amps_backup,
    content_of,
    create,
    instance,
    records_of,
    restored_instance,
)
from tests.support.waiting import wait_until


def test_a_restored_backup_is_the_instance_at_one_moment(tmp_path: Path) -> None:
    """Log, records and queue of one moment, with all that was acknowledged before."""
    with instance(tmp_path / "original") as admin:
        clients = Clients(admin.server)
        with clients.at_work():
            wait_until(lambda: clients.known.persisted > 4_000 and len(clients.taken) > 100)
            persisted, taken = clients.known.persisted, set(clients.taken)
            first = create(admin)
            create(admin)
            sent, asked = clients.known.sent, set(clients.asked)
        assert not clients.problems
    backups = first.parent
    verified = amps_backup("verify", backups)
    assert verified.returncode == 0, verified.stdout
    for place, backup in enumerate(sorted(path.name for path in backups.iterdir())):
        target = tmp_path / f"restored-{place}"
        restored = amps_backup("restore", backups, backup, "--to", target)
        assert restored.returncode == 0, restored.stderr
        with restored_instance(target) as server:
            content = content_of(server)
            with server.log_on("reader") as peer:
                assert len(records_of(peer, "unlogged")) == KEYS
            assert not [line for line in server.log().splitlines() if " error: " in line]
        _check(content, persisted, sent, taken, asked)


def _check(content: Content, persisted: int, sent: int, taken: set[int], asked: set[int]) -> None:
    """Check an instance against what clients knew before and after the backups."""
    end = len(content.log)
    assert content.log == list(range(1, end + 1))
    assert persisted <= end <= sent
    odd = range(1, end + 1, 2)
    assert content.records == {number % KEYS: number for number in odd}
    jobs = set(range(2, end + 1, 2))
    assert not content.queue & taken, "an acknowledged job is there again"
    assert content.queue >= jobs - asked, "a job is lost"
    assert content.queue <= jobs


def test_records_that_are_rewritten_all_the_time(tmp_path: Path) -> None:
    """Slabs are cleaned and reused between backups, and not while one is made."""
    with instance(tmp_path / "original") as admin:
        clients = Clients(admin.server, pad=20_000)
        with clients.at_work():
            for enough in (400, 1_200, 2_000):
                wait_until(lambda: clients.known.persisted > enough)  # noqa: B023 - called at once
                backup = create(admin, "--keep", 1)
    assert [path.name for path in backup.parent.iterdir()] == [backup.name]
    target = tmp_path / "restored"
    assert amps_backup("restore", backup.parent, "--to", target).returncode == 0
    with restored_instance(target) as server:
        content = content_of(server)
    odd = range(1, len(content.log) + 1, 2)
    assert content.records == {number % KEYS: number for number in odd}
