"""`amps-ctl rolling-restart`: instances of a mesh are restarted one after the other."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.test_ctl import run_ctl
from tests.cli.test_ctl_drain import LOG, QUEUE
from tests.security.users import MODULES, write_users
from tests.support.queues import consume, numbers, put, take
from tests.support.quick import quick_command
from tests.support.server import CONFIGURATION, free_port, running_configuration
from tests.support.waiting import wait_until

ELEMENTS: Final = """
<Admin><InetAddr>127.0.0.1:{admin}</InetAddr><Interval>1s</Interval></Admin>
<SOW><Queue>
  <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
  <Semantics>at-least-once</Semantics><MaxPerSubscriptionBacklog>20</MaxPerSubscriptionBacklog>
</Queue></SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>jobs|work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication><Destination>
  <Name>{other}</Name><SyncType>sync</SyncType>
  <Topic><Name>jobs</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
  <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{there}</InetAddr></Transport>
</Destination></Replication>
"""
RECEIVER: Final = """
<Transport>
  <Name>replication</Name><Type>amps-replication</Type>
  <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
</Transport>
"""
START: Final = """#!/bin/sh
cd {directory}/$AMPS_INSTANCE || exit 1
nohup {command} config.xml >>again.log 2>&1 </dev/null &
echo $! >>{directory}/pids
"""


@dataclass(frozen=True)
class RunningMesh:
    """Two instances.

    Attributes:
        directory: has a directory for each.
        instances: their admin interfaces, by name.
        start: the command that starts one again.
    """

    directory: Path
    instances: dict[str, Admin]
    start: str

    def url(self, name: str) -> str:
        """The admin interface of an instance."""
        return f"http://127.0.0.1:{self.instances[name].port}"

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command with an instance that knows the mesh."""
        return run_ctl("rolling-restart", "--url", self.url("east"), *words)

    def pids(self) -> list[int]:
        """The instances that have been started again."""
        file = self.directory / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    ports = {name: [free_port() for _ in range(3)] for name in ("east", "west")}
    script = tmp_path / "start"
    command = shlex.join([*quick_command("server.cli.amp_server")])
    script.write_text(START.format(directory=tmp_path, command=command))
    script.chmod(0o700)
    with ExitStack() as stack:
        instances = {}
        for name, other in (("east", "west"), ("west", "east")):
            port, admin, receiver = ports[name]
            text = CONFIGURATION.format(
                port=port,
                transports=RECEIVER.format(port=receiver),
                level="info",
                elements=ELEMENTS.format(admin=admin, other=other, there=ports[other][2]),
            )
            (tmp_path / name).mkdir()
            server = stack.enter_context(
                running_configuration(tmp_path / name, text.replace("test-instance", name), port)
            )
            instances[name] = Admin(admin, server)
        running = RunningMesh(tmp_path, instances, str(script))
        try:
            wait_until(lambda: all(one.ask("/readyz").status == 200 for one in instances.values()))
            address = "/amps/mesh/instances/west/admin_addr.csv"
            wait_until(lambda: "127.0.0.1" in instances["east"].ask(address).text)
            yield running
        finally:
            for pid in running.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_all_instances_are_restarted_and_no_message_is_lost(mesh: RunningMesh) -> None:
    put(mesh.instances["east"].server, "jobs", range(10))
    put(mesh.instances["west"].server, "jobs", range(10, 20))
    done = mesh.ctl("east", "west", "--restart-command", mesh.start)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.index("east: drained") < lines.index("east: ready") < lines.index("west: drained")
    assert lines[-2].startswith("east has been restarted, in ")
    assert lines[-1].startswith("west has been restarted, in ")
    assert len(mesh.pids()) == 2
    with mesh.instances["east"].server.log_on("worker") as worker:
        consume(worker, "work", 20)
        assert sorted(numbers(take(worker, 20))) == list(range(20))
        assert worker.hears_nothing()


def test_messages_of_instances_that_are_not_named_have_owners(
    mesh: RunningMesh, tmp_path: Path
) -> None:
    messages = tmp_path / "messages"
    messages.write_text("".join(f'{{"n":{number}}}\n' for number in range(5)))
    server = f"localhost:{mesh.instances['east'].server.port}"
    words = ["publish", "-server", server, "-type", "json", "-topic", "jobs"]
    publish = shlex.join([*quick_command("server.cli.spark"), *words, "-file", str(messages)])
    done = mesh.ctl("west", "--restart-command", f"{mesh.start} && {publish}", "--timeout", "20s")
    assert done.returncode == 0, done.stderr


def test_it_stops_at_an_instance_that_does_not_come_back(mesh: RunningMesh) -> None:
    done = mesh.ctl("west", "east", "--restart-command", "true", "--timeout", "2s", "--json")
    assert done.returncode == 3
    west, east = json.loads(done.stdout)["results"]
    assert (west["id"], west["done"]) == ("west", False)
    assert west["result"].startswith("it has been restarted, and is not as before: ")
    assert "destination west: it is not connected" in west["result"]
    assert east == {"id": "east", "done": False, "result": "it has not been restarted"}
    assert mesh.instances["east"].ask("/healthz").status == 200
    again = mesh.ctl(mesh.url("east"))
    assert again.returncode == 3
    assert "it has not been restarted: east: destination west: it is not connected" in again.stderr
    assert mesh.instances["east"].ask("/healthz").status == 200


def test_it_stops_where_the_command_fails(mesh: RunningMesh) -> None:
    done = mesh.ctl("west", "east", "--restart-command", "exit 7")
    assert done.returncode == 1
    assert "west: it has stopped, and the command that starts it has failed: 7" in done.stderr
    assert "east: it has not been restarted" in done.stderr
    assert mesh.instances["east"].ask("/healthz").status == 200


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["north"], 1, "there is no instance 'north' with an admin interface; there are "),
        (["east", "east"], 1, "east is named twice"),
        ([], 2, "rolling-restart needs an INSTANCE"),
        (["east", "--timeout", "soon"], 2, "soon"),
    ],
)
def test_what_cannot_be_restarted_is_refused(
    mesh: RunningMesh, words: list[str], code: int, said: str
) -> None:
    done = mesh.ctl(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


READER: Final = """
[users.carol]
password = "CAROL"
admin = [
    {{ topic = "^/(amps/mesh|readyz)", read = true }},
    {{ topic = "^/amps/instance($|/name|/{permitted})", read = true }},
]
"""


@pytest.mark.parametrize(
    ("permitted", "missing"), [("queues", "replication"), ("replication", "queues")]
)
def test_a_missing_permission_is_named(tmp_path: Path, permitted: str, missing: str) -> None:
    write_users(tmp_path, READER.format(permitted=permitted))
    basic = '<WWWAuthenticate>Basic realm="test"</WWWAuthenticate>'
    with running_admin(tmp_path, basic, elements=LOG + QUEUE + MODULES) as admin:
        url = f"http://127.0.0.1:{admin.port}"
        account = {"AMPS_ADMIN_USER": "carol", "AMPS_ADMIN_PASSWORD": "carol"}
        done = run_ctl("rolling-restart", url, **account)
        assert done.returncode == 1
        assert f"the user lacks the permission to read /amps/instance/{missing}" in done.stderr
