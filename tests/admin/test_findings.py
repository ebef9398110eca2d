"""/amps/instance/findings: what is wrong, the worst first, and where to read what to do."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest
import trustme

from server.admin.console.runbook import anchor
from server.admin.diagnosis import file_checks, sample_checks
from server.admin.diagnosis.directories import InstanceDirectory
from server.admin.diagnosis.findings import CheckFinding, CheckVerdict
from server.admin.diagnosis.findings_page import FileFindings
from server.admin.diagnosis.sample_checks import log_findings, sample_findings
from server.log.levels import Level
from server.log.targets.base import LogLine
from server.log.targets.memory import MAX_ERROR_BYTES, MAX_MEMORY_ENTRIES, MemoryTarget
from tests.admin.support import Admin, example_snapshot, running_admin
from tests.support.server import free_port
from tests.support.waiting import wait_until

RUNBOOK: Final = Path(__file__).parents[2] / "docs/operations.md"
LARGE: Final = b'{"id": 1, "text": "%s"}' % (b"x" * 100_000)
CERTIFIED: Final = """
<Transport>
  <Name>safe</Name><Type>tcps</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol><MessageType>json</MessageType>
  <Certificate>./own.pem</Certificate><PrivateKey>./own.pem</PrivateKey>
</Transport>
"""
NO_CLIENTS: Final = """
<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
<AnonymousPaths>^/amps/instance/(findings|queues|latencies)|^/amps/host|^/readyz</AnonymousPaths>
"""


def findings(admin: Admin) -> list[dict[str, str]]:
    document = admin.tree("/amps/instance/findings.json")["amps"]["instance"]["findings"]
    checks: list[dict[str, str]] = document["checks"]
    return checks


def wrong(found: list[CheckFinding]) -> list[CheckFinding]:
    return [one for one in found if one.verdict]


def test_the_worst_comes_first_with_its_page_and_its_section(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    begin, end = now - timedelta(days=9), now + timedelta(days=20)
    issued = trustme.CA().issue_cert("localhost", not_before=begin, not_after=end)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    with (
        running_admin(tmp_path, transports=CERTIFIED.format(port=free_port())) as admin,
        admin.server.log_on("sleeper") as sleeper,
        admin.server.log_on("publisher") as publisher,
    ):
        sleeper.send({"c": "subscribe", "cid": "1", "t": "bulk"})
        for _ in range(300):
            publisher.send({"c": "publish", "t": "bulk"}, LARGE)
        wait_until(lambda: any(one["name"] == "client sleeper" for one in findings(admin)))
        assert admin.ask("/amps/administrator/transports/safe/disable", "POST").status == 200
        wait_until(lambda: findings(admin)[0]["verdict"] == "error")
        found = findings(admin)
        verdicts = [one["verdict"] for one in found]
        assert verdicts == sorted(verdicts, key=["error", "warning", "ok"].index)
        by_name = {one["name"]: one for one in found}
        assert by_name["transport safe"]["value"] == "it is disabled"
        slow = by_name["client sleeper"]
        assert slow["page"].startswith("clients?")
        assert slow["runbook"] == "slow-clients"
        assert slow["since"]
        certificate = by_name["./own.pem of transport safe"]
        assert (certificate["verdict"], certificate["runbook"]) == (
            "warning",
            "certificates-that-expire",
        )
        assert any(one["area"] == "disks" and " free (" in one["value"] for one in found)
        document = ElementTree.fromstring(admin.ask("/amps/instance/findings.xml").text)
        assert document.tag == "amps"
        assert document.findtext("instance/findings/verdict") == "error"
        assert "client sleeper" in admin.ask("/amps/instance/findings").text
        assert admin.ask("/amps/instance/findings.csv").status == 404


def test_findings_about_what_may_not_be_seen_are_left_out(tmp_path: Path) -> None:
    with running_admin(tmp_path, NO_CLIENTS) as admin:
        names = {one["name"] for one in findings(admin)}
        assert {"engine", "queues"} <= names
        assert "clients" not in names
        assert admin.ask("/amps/instance/clients").status == 403


def snapshot_findings(**changed: Any) -> list[CheckFinding]:
    quiet: dict[str, Any] = {
        "instance__clients": {one: {"queue_max_latency": 0.0} for one in ("1", "2")},
    }
    return [*sample_findings(example_snapshot(**quiet | changed))]


def test_nothing_is_wrong_with_a_quiet_sample() -> None:
    found = snapshot_findings()
    assert wrong(found) == []
    assert [one.name for one in found] == ["clients", "queues"]


@pytest.mark.parametrize(
    ("seconds", "verdicts"),
    [(1.0, []), (1.5, [CheckVerdict.WARNING]), (61.0, [CheckVerdict.ERROR])],
)
def test_clients_are_slow_after_a_second(seconds: float, verdicts: list[CheckVerdict]) -> None:
    clients = {"1": {"queue_max_latency": seconds}, "2": {"queue_max_latency": 0.0}}
    found = wrong(snapshot_findings(instance__clients=clients))
    assert [one.verdict for one in found] == verdicts
    since = datetime(2026, 11, 23, 4, 15, 0, 250_000) - timedelta(seconds=seconds)
    assert all(one.since == f"{since:%Y%m%dT%H%M%S.%fZ}" for one in found)


def test_queues_are_stuck_after_a_minute() -> None:
    queues = {
        "1": {"seconds_behind": 60.0},
        "2": {"seconds_behind": 3_600.0, "queue_depth": 7, "consumers": 0},
    }
    (found,) = wrong(snapshot_findings(instance__queues=queues))
    assert found.name == "queue 2"
    assert found.value.startswith("7 messages, 12 leased, the oldest for 1.0 h, 0 consumers")
    assert found.reason == "it has no consumers"
    assert found.page == "queues?sort=seconds_behind&order=desc&id=2"


def test_of_many_slow_clients_the_slowest_are_listed() -> None:
    clients: Any = {str(number): {"queue_max_latency": 2.0 + number} for number in range(1, 101)}
    found = wrong([*sample_findings(example_snapshot(entries=100, instance__clients=clients))])
    assert len(found) == 21
    assert found[0].page.endswith("&id=100")
    assert found[-1].name == "80 more clients"
    assert found[-1].page == "clients?sort=queue_max_latency&order=desc"


def test_long_work_of_the_engine_is_found() -> None:
    sample = example_snapshot()
    (turn, _) = sample.entries["instance/latencies"].values()
    slow = tuple(150_000.0 if value == 0.5 else value for value in turn)
    sample = replace(sample, entries={**sample.entries, "instance/latencies": {"turn": slow}})
    (found,) = (one for one in sample_findings(sample) if "engine" in one.name)
    assert (found.verdict, found.value) == (CheckVerdict.WARNING, "99 of 100 take up to 150.0 ms")


def line(level: Level, text: str, age_s: float) -> LogLine:
    return LogLine(text.encode(), level, time.time_ns() - int(age_s * 1e9))


def test_errors_of_the_last_hour_are_counted_by_message() -> None:
    found = log_findings(
        [
            line(Level.ERROR, "2026-11-30T10:00:00 [1] error: 01-0004 old", 3_700),
            line(Level.ERROR, "2026-11-30T10:00:00 [1] error: 01-0004 one", 60),
            line(Level.ERROR, "2026-11-30T10:00:00 [1] error: 01-0004 two", 50),
            line(Level.CRITICAL, "2026-11-30T10:00:00 [1] critical: 1D-0018 three", 40),
        ],
        time.time_ns(),
    )
    assert [(one.name, one.verdict) for one in found] == [
        ("message 1D-0018", CheckVerdict.ERROR),
        ("message 01-0004", CheckVerdict.WARNING),
    ]
    assert found[1].value.startswith("2 times in the last hour")
    assert found[1].page == "log?find=01-0004"
    assert found[1].reason


def test_errors_stay_when_other_entries_displace_them() -> None:
    recent = MemoryTarget()
    recent.write([line(Level.ERROR, "error: 01-0004 " + "x" * 1_000, 0)])
    recent.write([line(Level.INFO, "info", 0)] * (MAX_MEMORY_ENTRIES + 1))
    assert all(entry.line.level is Level.INFO for entry in recent.entries_after(0))
    (error,) = recent.recent_errors()
    assert len(error.text) == MAX_ERROR_BYTES


def test_a_file_system_that_fails_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statvfs(path: Path) -> os.statvfs_result:
        if path == Path("/proc"):
            raise OSError(errno.EIO, "it is broken", str(path))
        return real_statvfs(path)

    real_statvfs = os.statvfs
    monkeypatch.setattr(os, "statvfs", statvfs)
    directories = [InstanceDirectory("a", Path("/proc")), InstanceDirectory("b", tmp_path)]
    broken, sound = file_checks.disk_findings(directories)
    assert (broken.verdict, broken.name, broken.value) == (
        CheckVerdict.ERROR,
        "/proc",
        "it is broken",
    )
    assert sound.name == f"b: {tmp_path}"


def test_a_check_of_files_that_fails_is_a_finding_at_once() -> None:
    """And not one that every later request waits for in vain."""
    disk = file_checks.disk_problem("a disk", "it is full")

    def find() -> Iterator[CheckFinding]:
        yield disk
        raise ValueError("no such thing")

    found = asyncio.run(FileFindings(find).latest())
    assert [(one.name, one.value) for one in found] == [
        ("a disk", "it is full"),
        ("file systems", "no such thing"),
    ]


def test_each_section_of_the_runbook_is_there() -> None:
    titles = re.findall(r"^#+ (.*)", RUNBOOK.read_text(), re.MULTILINE)
    named = set()
    for module in (file_checks, sample_checks):
        source = Path(str(module.__file__)).read_text()
        named |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source))
    assert {"slow-clients", "full-disks", "errors-in-the-log"} <= named
    assert named <= set(map(anchor, titles))
