"""The samples of replication are right by themselves and together, and do what they say."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.forked import ForkedProcess
from tests.support.raw import QUICK_ACKS
from tests.support.server import ROOT, RunningServer, amp_server, free_port, wait_until_started
from tests.support.sow import query
from tests.support.waiting import wait_until

SAMPLES: Final = ROOT / "sample_configs" / "replication"
FILES: Final = sorted(SAMPLES.glob("*.xml"))
TOPOLOGIES: Final = ("pair_", "hub spoke_", "chain_", "view_")
"""What the names of the instances of each begin with."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_valid(path: Path) -> None:
    """Without a warning."""
    run = amp_server("--verify-config", path)
    assert (run.returncode, run.stderr) == (0, f"{path} is valid: 0 errors, 0 warnings\n")


@pytest.mark.parametrize("names", [*TOPOLOGIES, ""], ids=[*TOPOLOGIES, "all"])
def test_those_that_belong_together_fit_together(names: str) -> None:
    """By themselves, and all at once, in which no two are in each other's way."""
    paths = [path for path in FILES if path.stem.startswith(tuple(names.split() or [""]))]
    run = amp_server("--verify-config", *paths)
    assert run.returncode == 0
    together = ", ".join(str(path) for path in paths)
    assert run.stderr.splitlines()[len(paths) :] == [
        f"{together} fit together: 0 errors, 0 warnings"
    ]


def test_all_belong_to_a_topology_and_say_how_they_are_started() -> None:
    """The first of each with the commands for all, and with what to try."""
    for path in FILES:
        assert path.stem.startswith(tuple(" ".join(TOPOLOGIES).split()))
        text = path.read_text()
        assert f"    ampServer sample_configs/replication/{path.name}\n" in text
        assert re.search("spark|says what to try", text)


@contextmanager
def instances(directory: Path, *names: str) -> Iterator[Mapping[str, RunningServer]]:
    """Run samples beside one another, on ports of their own."""
    shutil.copytree(SAMPLES.parent, directory / "sample_configs")
    ports = {str(port): str(free_port()) for port in _ports()}
    for path in (directory / "sample_configs" / "replication").glob("*.xml"):
        text = path.read_text()
        path.write_text(re.sub("|".join(ports), lambda found: ports[found[0]], text))
    running = {}
    try:
        for name in names:
            path = directory / "sample_configs" / "replication" / f"{name}.xml"
            port = re.search(r"<InetAddr>(\d+)<", path.read_text())
            assert port is not None
            log = directory / f"{name}.log"
            process = ForkedProcess(directory, path, log, None)
            running[name] = RunningServer(int(port[1]), process, log)
        for server in running.values():
            wait_until_started(server)
        yield running
    finally:
        for server in running.values():
            server.process.kill()
            server.process.wait()


def _ports() -> set[str]:
    return {port for path in FILES for port in re.findall(r"\b9[1-4][1-3][12]\b", path.read_text())}


def publish(server: RunningServer, name: str, order: dict[str, Any]) -> None:
    """Publish an order, and wait until it is acknowledged."""
    with server.log_on(name, o=QUICK_ACKS) as peer:
        header = {"c": "publish", "t": "orders", "cid": "1", "a": "persisted"}
        assert peer.ask(header, json.dumps(order).encode())["status"] == "success"


def becomes(server: RunningServer, topic: str, expected: list[dict[str, Any]]) -> None:
    """Wait until the records of a topic are as expected."""

    def records() -> list[dict[str, Any]]:
        with server.log_on("reader") as peer:
            found: list[dict[str, Any]] = query(peer, topic).messages
            return sorted(found, key=json.dumps)

    wait_until(lambda: records() == expected, lambda: f"{server.log_file.name}: {records()}")


@pytest.mark.parametrize(
    ("names", "publishers"),
    [
        pytest.param(("pair_east", "pair_west"), ("pair_east", "pair_west"), id="pair"),
        pytest.param(
            ("hub", "spoke_london", "spoke_tokyo"),
            ("spoke_london", "spoke_tokyo", "hub"),
            id="hub and spokes",
        ),
        pytest.param(
            ("chain_new_york", "chain_london", "chain_tokyo"),
            ("chain_new_york", "chain_london", "chain_tokyo"),
            id="chain",
        ),
        pytest.param(
            ("view_primary", "view_secondary", "view_server"),
            ("view_primary", "view_secondary"),
            id="view server",
        ),
    ],
)
def test_what_is_published_at_one_gets_to_all(
    tmp_path: Path, names: tuple[str, ...], publishers: tuple[str, ...]
) -> None:
    """And nobody complains, but of those that are not there yet."""
    with instances(tmp_path, *names) as running:
        for number, name in enumerate(publishers):
            publish(running[name], name, {"id": number, "sym": "IBM", "qty": 100})
        expected = [{"id": n, "sym": "IBM", "qty": 100} for n in range(len(publishers))]
        for server in running.values():
            becomes(server, "orders", expected)
        if "view_server" in names:
            position = {"sym": "IBM", "qty": 200, "orders": 2}
            becomes(running["view_server"], "positions", [position])
        for server in running.values():
            assert (
                re.findall(r"(?:warning|error|critical): (?!1E-0008|1E-0065).*", server.log()) == []
            )


def test_consumers_at_either_of_the_pair_share_a_queue(tmp_path: Path) -> None:
    """Jobs that are published at one are done at the other, if nobody is there."""
    with (
        instances(tmp_path, "pair_east", "pair_west") as running,
        running["pair_west"].log_on("worker") as worker,
        running["pair_east"].log_on("boss", o=QUICK_ACKS) as boss,
    ):
        worker.send({"c": "subscribe", "sub_id": "w", "t": "jobs", "o": "max_backlog=10"})
        header = {"c": "publish", "t": "jobs", "cid": "1", "a": "persisted"}
        assert boss.ask(header, b'{"job":1}')["status"] == "success"
        delivered, body = worker.receive()
        assert body == b'{"job":1}'
        done = {"c": "sow_delete", "t": "jobs", "bm": delivered["bm"], "cid": "2"}
        assert worker.ask(done | {"a": "persisted"})["status"] == "success"
        for server in running.values():
            becomes(server, "jobs", [])
