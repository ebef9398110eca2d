"""amps-backup and amps-action-do-backup: what they make, refuse, keep and find."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.admin.support import Admin
from tests.backup.support import (
    ELEMENTS,
    Clients,
    amps_backup,
    content_of,
    create,
    instance,
    message,
    restored_instance,
)
from tests.security.users import MODULES, hashed, write_users
from tests.support.waiting import wait_until

MANIFEST: Final = "manifest.json"
REQUEST: Final = "/amps/administrator/backup"
"""Begins a backup, and does not wait: the command takes longer to end than the backup may."""
ACTION: Final = """
<Actions>
  <Action>
    <On><Module>amps-action-on-admin</Module><Options><Path>save</Path></Options></On>
    <Do><Module>amps-action-do-backup</Module>
      <Options><Directory>saved/nightly</Directory><Keep>2</Keep></Options></Do>
  </Action>
</Actions>
"""

USERS: Final = f"""
[users.operator]
logon = true
password = "{hashed("secret")}"
admin = [{{ topic = "^/amps/administrator/backup", read = true }}]

[users.viewer]
logon = true
password = "{hashed("secret")}"
admin = [{{ topic = "^/amps/instance", read = true }}]
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with instance(tmp_path_factory.mktemp("instance"), ELEMENTS + ACTION) as running:
        _publish(running, 1, 3_001)
        yield running


def _publish(admin: Admin, first: int, last: int) -> None:
    """Publish orders, and wait until they are persisted."""
    with admin.server.log_on("world") as peer:
        for number in range(first, last + 1, 2):
            topic, body = message(number, 20_000)
            peer.publish(topic, body, s=number, **({"a": "persisted"} if number == last else {}))
        while peer.receive_header().get("s") != last:
            pass


def _manifest(backup: Path) -> Any:
    return json.loads((backup / MANIFEST).read_text())


def _journals(backup: Path) -> dict[str, Path]:
    found = sorted((backup / "files" / "journal").glob("*.journal"))
    return {path.name: path for path in found}


def _list(backups: Path) -> list[Any]:
    done = amps_backup("list", backups, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_manifest_says_what_is_in_a_backup(admin: Admin) -> None:
    backup = create(admin)
    manifest = _manifest(backup)
    kinds = {file["kind"] for file in manifest["files"]}
    assert kinds >= {"configuration", "journal", "last_journal", "sow", "sidecar", "statistics"}
    for file in manifest["files"]:
        assert (backup / "files" / file["path"]).stat().st_size == file["size"]
        assert Path(file["original"]).exists()
    assert manifest["instance"] == "test-instance"
    assert manifest["last_bookmark"].startswith(manifest["last_bookmark"].split("|")[0])
    (newest,) = [one for one in _list(backup.parent) if one["id"] == backup.name]
    assert newest["complete"]
    assert newest["last_bookmark"] == manifest["last_bookmark"] != ""


def test_full_journals_are_links(admin: Admin) -> None:
    """To the instance's files, and to those of the backup before; the last one is a copy."""
    first = create(admin, "linked")
    second = create(admin, "linked")
    names = list(_journals(first))
    assert len(names) > 1
    for name in names[:-1]:
        original = Path(_original(first, name))
        assert os.path.samefile(original, _journals(first)[name])
        assert os.path.samefile(original, _journals(second)[name])
    assert not os.path.samefile(_journals(first)[names[-1]], _journals(second)[names[-1]])


def _original(backup: Path, name: str) -> str:
    files = _manifest(backup)["files"]
    (path,) = [file["original"] for file in files if file["original"].endswith(name)]
    return str(path)


def test_a_backup_outlives_the_journals_of_the_instance(admin: Admin) -> None:
    """A journal that the instance removes stays in the backup."""
    backup = create(admin, "outlives")
    oldest = Path(_original(backup, next(iter(_journals(backup)))))
    reply = admin.ask(f"/amps/administrator/transaction_log/journals/{oldest.name}/remove")
    assert reply.status == 200, reply.text
    wait_until(lambda: not oldest.exists())
    assert amps_backup("verify", backup.parent, backup.name).returncode == 0


def test_expired_backups_are_removed(admin: Admin) -> None:
    backups = [create(admin, "expiring", "--keep", 2).name for _ in range(3)]
    found = _list(create(admin, "expiring", "--keep-days", 1).parent)
    assert [one["id"] for one in found[:2]] == backups[1:]
    assert len(found) == 3


def test_backups_are_made_below_their_directory_only(admin: Admin, tmp_path: Path) -> None:
    """Also not by a symbolic link that leads out of it."""
    root = create(admin, "inside").parent.parent
    (root / "way-out").symlink_to(tmp_path)
    url = f"http://127.0.0.1:{admin.port}"
    for place in (tmp_path, "../elsewhere", "inside/../../x", "way-out/x"):
        done = amps_backup("create", "--instance", url, place)
        assert done.returncode == 1
        assert "BackupDirectory" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_changed_file_is_found(admin: Admin, tmp_path: Path) -> None:
    """Whichever it is, and the manifest, too; nothing of such a backup is restored."""
    backup = create(admin, "changed")
    manifest = (backup / MANIFEST).read_bytes()
    files = _manifest(backup)["files"]
    for file in files:
        path = backup / "files" / file["path"]
        content = path.read_bytes()
        path.unlink()  # it may be a link to the instance's file
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = amps_backup("verify", "--json", backup.parent, backup.name)
    assert done.returncode == 1
    problems = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["file"] for one in problems] == [file["path"] for file in files]
    assert {one["verdict"] for one in problems} == {"damaged"}
    restored = amps_backup("restore", backup.parent, backup.name, "--to", tmp_path / "new")
    assert restored.returncode == 1
    assert "damaged" in restored.stderr
    assert not list((tmp_path / "new").iterdir())
    (backup / MANIFEST).write_bytes(manifest.replace(b'"last_txid": 1', b'"last_txid": 2', 1))
    done = amps_backup("verify", backup.parent)
    assert done.returncode == 1
    assert "checksum" in done.stdout
    (backup / MANIFEST).unlink()
    (listed,) = _list(backup.parent)
    assert not listed["complete"]
    assert "incomplete" in listed["error"]


def test_a_restore_overwrites_nothing(admin: Admin, tmp_path: Path) -> None:
    backup = create(admin, "careful")
    (tmp_path / "mine").write_text("mine")
    done = amps_backup("restore", backup.parent, "--to", tmp_path)
    assert done.returncode == 1
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    missing = amps_backup("restore", backup.parent, "unknown", "--to", tmp_path / "new")
    assert missing.returncode == 1
    assert "there is no backup unknown" in missing.stderr


def test_an_action_makes_backups(admin: Admin) -> None:
    """It keeps as many as it says, wherever the configuration says."""
    saved = Path(_original(create(admin), "config.xml")).parent / "saved" / "nightly"
    for number in range(1, 4):
        assert admin.ask("/amps/administrator/actions/save").status == 200
        wait_until(lambda: _completions(admin, saved) == number)  # noqa: B023 - called at once
    wait_until(lambda: len(_list(saved)) == 2)
    assert all(one["complete"] for one in _list(saved))


def _completions(admin: Admin, directory: Path) -> int:
    lines = [line for line in admin.server.log().splitlines() if " 2C-0011 " in line]
    return sum(str(directory) in line for line in lines)


def test_entitlement_decides_who_makes_backups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of the operation is a resource like others; a refused request makes nothing."""
    write_users(tmp_path, USERS)
    (tmp_path / "password").write_text("secret\n")
    basic = '<WWWAuthenticate>Basic realm="AMPS"</WWWAuthenticate>'
    with instance(tmp_path, MODULES + ELEMENTS, basic) as admin:
        words = ["create", "--instance", f"http://127.0.0.1:{admin.port}"]
        login = ["--password-file", tmp_path / "password"]
        assert "credentials" in amps_backup(*words).stderr
        refused = amps_backup(*words, "--user", "viewer", *login)
        assert refused.returncode == 1
        assert "403" in refused.stderr
        assert not (tmp_path / "backups").exists()
        assert amps_backup(*words, "--user", "operator", *login).returncode == 0
        monkeypatch.setenv("AMPS_ADMIN_USER", "operator")
        monkeypatch.setenv("AMPS_ADMIN_PASSWORD", "secret")
        assert amps_backup(*words).returncode == 0
    assert len(_list(tmp_path / "backups")) == 2


LARGE: Final = ELEMENTS.replace(
    "<SlabSize>1MB</SlabSize>", "<SlabSize>1MB</SlabSize><InitialSlabCount>500</InitialSlabCount>"
)
"""With a SOW file that takes a while to copy."""


def test_a_kill_leaves_an_incomplete_backup(tmp_path: Path) -> None:
    """The instance recovers, and its next backup removes what is left of the first."""
    directory = tmp_path / "original"
    with instance(directory, LARGE) as admin:
        clients = Clients(admin.server)
        with clients.at_work():
            wait_until(lambda: clients.known.persisted > 500)
            assert admin.ask(REQUEST).status == 200
            admin.server.stop(signal.SIGKILL)
    (killed,) = _list(directory / "backups")
    assert not killed["complete"]
    done = amps_backup("restore", directory / "backups", "--to", tmp_path / "new")
    assert "no complete backup" in done.stderr
    with instance(directory, LARGE) as admin:
        content = content_of(admin.server)
        assert len(content.log) >= clients.known.persisted
        backup = create(admin)
    assert [one["id"] for one in _list(directory / "backups")] == [backup.name]
    assert amps_backup("restore", backup.parent, "--to", tmp_path / "new").returncode == 0
    with restored_instance(tmp_path / "new") as server:
        assert content_of(server).log == [*content.log, 0]


def test_a_stop_aborts_a_backup(tmp_path: Path) -> None:
    with instance(tmp_path, LARGE) as admin:
        assert admin.ask(REQUEST).status == 200
        assert admin.server.stop() == 0
    assert admin.server.logs("2C-0012")
    assert not _list(tmp_path / "backups")


def test_one_backup_at_a_time(tmp_path: Path) -> None:
    with instance(tmp_path, LARGE) as admin:
        assert admin.ask(REQUEST).status == 200
        second = admin.ask(REQUEST)
        assert second.status == 409
        assert "still being made" in second.text
        runs = admin.ask("/amps/administrator/backups.json").json["amps"]["administrator"]
        (run,) = runs["backups"]
        assert run["name"].startswith("running")
        assert admin.ask(run["cancel"]).status == 200
        wait_until(lambda: "it was aborted" in admin.ask("/amps/administrator/backups").text)
    assert not _list(tmp_path / "backups")
