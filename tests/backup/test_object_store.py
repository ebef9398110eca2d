"""Backups in an object store: the one of fsspec that keeps its objects in a directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from server.cli import amps_backup as command
from server.storage.backup.manifest import read_manifest, store_manifest
from tests.admin.support import Admin
from tests.backup.support import ELEMENTS, amps_backup, create, instance

MANIFEST: Final = "manifest.json"


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with instance(tmp_path_factory.mktemp("instance"), ELEMENTS) as running:
        with running.server.log_on("publisher") as peer:
            peer.publish("orders", b'{"id":1}')
            peer.flush()
        yield running


@pytest.fixture(scope="module")
def backups(admin: Admin) -> list[Path]:
    """Two backups in one directory, the older first."""
    return [create(admin), create(admin)]


def _contents(backup: Path) -> dict[str, bytes]:
    paths = [path for path in backup.rglob("*") if path.is_file()]
    return {str(path.relative_to(backup)): path.read_bytes() for path in paths}


def test_the_newest_backup_is_uploaded_and_comes_back(backups: list[Path], tmp_path: Path) -> None:
    store, url = tmp_path / "store", (tmp_path / "store" / "orders").as_uri()
    newest = backups[-1]
    for backup in backups:
        sent = amps_backup("upload", newest.parent, backup.name, "--to", url, "--json")
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["place"] == f"{url}/{backup.name}"
        assert json.loads(sent.stdout)["bytes"] > 0
    assert _contents(store / "orders" / newest.name) == _contents(newest)
    got = amps_backup("download", url, "--to", tmp_path / "back")
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith(f"{tmp_path / 'back' / newest.name}: ")
    assert _contents(tmp_path / "back" / newest.name) == _contents(newest)
    assert [path.name for path in (tmp_path / "back").iterdir()] == [newest.name]
    verified = amps_backup("verify", tmp_path / "back")
    assert verified.stdout == f"{newest.name}: intact\n"
    again = amps_backup("download", url, newest.name, "--to", tmp_path / "back")
    assert again.returncode == 1
    assert "exists: nothing was changed" in again.stderr


def test_an_interrupted_upload_is_no_backup_and_goes_on(
    backups: list[Path], tmp_path: Path
) -> None:
    url, backup = (tmp_path / "store").as_uri(), backups[0]
    assert amps_backup("upload", backup.parent, backup.name, "--to", url).returncode == 0
    stored = tmp_path / "store" / backup.name
    (stored / MANIFEST).unlink()
    [journal, *_] = sorted(stored.rglob("*.journal"))
    size = journal.stat().st_size
    journal.write_bytes(b"cut")
    missing = amps_backup("download", url, "--to", tmp_path / "back")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"there is no complete backup in {url}" in missing.stderr
    more = amps_backup("upload", backup.parent, backup.name, "--to", url, "--json")
    assert json.loads(more.stdout)["bytes"] == size, "only what was missing"
    assert _contents(stored) == _contents(backup)


def test_a_manifest_that_names_other_places_is_refused(backups: list[Path], tmp_path: Path) -> None:
    url, backup = (tmp_path / "store").as_uri(), backups[0]
    assert amps_backup("upload", backup.parent, backup.name, "--to", url).returncode == 0
    manifest = tmp_path / "store" / backup.name / MANIFEST
    original = read_manifest(manifest.parent)
    assert original is not None
    [first, *others] = original.files
    outside = msgspec.structs.replace(first, path="../elsewhere")
    store_manifest(manifest.parent, msgspec.structs.replace(original, files=(outside, *others)))
    refused = amps_backup("download", url, "--to", tmp_path / "back")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"amps-backup: {url}: ")
    assert refused.stderr.endswith(": ../elsewhere is outside of the backup\n")
    assert not (tmp_path / "back" / backup.name).exists()


def test_credentials_of_a_url_are_not_printed(backups: list[Path]) -> None:
    done = amps_backup("upload", backups[0].parent, "--to", "memory://me:secret@bucket")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"memory://bucket/{backups[-1].name}: ")


@pytest.mark.parametrize(
    ("url", "shown", "cause"),
    [
        ("nowhere://me:secret@bucket", "nowhere://bucket", "nowhere"),
        ("file:///proc/no/place", "file:///proc/no/place", "/proc/no/place"),
        ("github://orders", "github://orders", "'org' and 'repo'"),
        ("ftp://me:secret@127.0.0.1:1/x", "ftp://127.0.0.1:1/x", "Connection refused"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_in_one_line(
    backups: list[Path], url: str, shown: str, cause: str
) -> None:
    done = amps_backup("upload", backups[0].parent, "--to", url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"amps-backup: {shown}: ")
    assert cause in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_extra_is_named_where_it_is_not_installed(
    backups: list[Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert command.main(["upload", str(backups[0].parent), "--to", "s3://bucket"]) == 1
    assert "pip install 'amperage[object-store]'" in capfd.readouterr().err
