"""sample_configs/secure.xml does what its comment says, command by command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.support import ask
from tests.cli.test_spark import spark
from tests.security.test_users_file import basic
from tests.support.server import ROOT, free_port, running_configuration

SAMPLE = ROOT / "sample_configs" / "secure.xml"
USERS = ROOT / "sample_configs" / "parts" / "users.toml"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    directory = tmp_path_factory.mktemp("secure")
    copy = directory / "sample_configs" / "parts" / "users.toml"
    copy.parent.mkdir(parents=True)
    shutil.copy(USERS, copy)
    port, admin = free_port(), free_port()
    text = SAMPLE.read_text().replace("localhost:9007", f"localhost:{port}")
    text = text.replace("localhost:8085", f"localhost:{admin}")
    with running_configuration(directory, text, port):
        yield port, admin


def test_users_do_what_the_comment_says(ports: tuple[int, int], tmp_path: Path) -> None:
    where = f"localhost:{ports[0]}"
    assert spark("ping", "-server", f"ann:wrong@{where}", "-type", "json")[0] != 0
    ann, bob = f"ann:ann-secret@{where}", f"bob:bob-secret@{where}"
    assert spark("ping", "-server", ann, "-type", "json")[0] == 0

    def publish(topic: str, body: dict[str, object]) -> None:
        line = json.dumps(body).encode() + b"\n"
        spark("publish", "-server", ann, "-type", "json", "-topic", topic, data=line)

    def records(who: str, topic: str) -> list[object]:
        _, found, _ = spark("sow", "-server", who, "-type", "json", "-topic", topic)
        return [json.loads(line) for line in found.splitlines() if line.startswith("{")]

    mine: dict[str, object] = {"id": 1, "desk": 7, "price": 10}
    publish("orders", mine)
    publish("orders", {"id": 2, "desk": 8, "price": 20})
    assert records(ann, "orders") == [mine]
    publish("prices", {"symbol": "ABC", "price": 10, "source": "secret"})
    assert records(bob, "prices") == [{"symbol": "ABC", "price": 10}]
    assert records(bob, "orders") == []


def test_the_admin_interface_is_shown_in_part(ports: tuple[int, int]) -> None:
    def status(path: str, user: str) -> int:
        return ask(ports[1], path, **basic(user, f"{user}-secret")).status

    users = ("carol", "ann", "bob")
    assert [status("/amps/instance.json", user) for user in users] == [200, 200, 403]
    assert [status("/amps/host.json", user) for user in users] == [200, 403, 403]
