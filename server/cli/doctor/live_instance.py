"""Checks of a running instance by its admin interface: identity, health, statistics."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from server.cli.doctor import logs
from server.cli.doctor.admin_interface import AdminClient, AdminRequestError
from server.cli.doctor.findings import CheckVerdict, Examination

AREA: Final = "admin interface"
_HEALTH: Final = "health"
_WRITTEN: Final = re.compile(r"Minidump written to (.*)\.")
_LONG_DELAY_S: Final = 60.0
_LONG_TASK_US: Final = 100_000.0
"""Microseconds (99th percentile) of one piece of work, during which all other clients wait."""


@dataclass(slots=True)
class InstanceIdentity:
    """The identity that an instance reports; all fields are empty until it has.

    Attributes:
        name: name of the instance.
        pid: its process; None if unknown.
        directory: base of relative paths.
        config: its configuration file.
        amps_version: the version of AMPS that it is compatible with.
        date: time of its answer, by its clock.
        request_times: times of the request and of the answer, in seconds since 1970.
    """

    name: str = ""
    pid: int | None = None
    directory: str = ""
    config: str = ""
    amps_version: str = ""
    date: str = ""
    request_times: tuple[float, float] = (0.0, 0.0)


def identify(admin: AdminClient, examination: Examination) -> InstanceIdentity | None:
    """Request an instance's identity; add a finding and return None if it does not answer."""
    asked_at = time.time()
    try:
        answer = admin.get("/amps/instance.json")
        about = json.loads(answer.body)["amps"]["instance"]
        identity = InstanceIdentity(
            about["name"],
            int(about["pid"]),
            about["cwd"],
            about["config_path"],
            about["version"],
            answer.date,
            (asked_at, time.time()),
        )
    except AdminRequestError as error:
        _refused(admin, error, examination)
        return None
    except (ValueError, KeyError, TypeError):
        examination.add_wrong(
            AREA,
            admin.url,
            "answers, but not as an instance does",
            "something else listens there, or statistics cannot be read",
            "look at the address: Admin/InetAddr of the configuration",
        )
        return None
    uptime = str(about.get("uptime", "")).partition(".")[0]
    examination.add_ok(AREA, admin.url, f"instance {identity.name}, up {uptime} at its last sample")
    return identity


def _refused(admin: AdminClient, error: AdminRequestError, examination: Examination) -> None:
    if error.status in (401, 403):
        examination.add_attention(
            AREA,
            admin.url,
            str(error),
            "the instance runs, and does not show anything to this user",
            "give --user with --password-file, or AMPS_ADMIN_USER and AMPS_ADMIN_PASSWORD,"
            " of a user who may read /amps",
        )
        return
    examination.add_wrong(
        AREA,
        admin.url,
        str(error),
        "the instance does not run, is not ready yet, or its admin interface cannot be reached",
        error.advice or "the log has the reason why it ended, or its current step",
    )


def examine(
    admin: AdminClient, configuration: str | None, examination: Examination, *, with_log: bool
) -> None:
    """Collect the state that an instance reports, and check its health.

    Args:
        admin: its admin interface.
        configuration: text of its configuration file, redacted; None if unknown.
        examination: collects the findings.
        with_log: request the end of the log, too, since there is no file of it.
    """
    steps: list[Callable[[], None]] = [
        lambda: _health(admin, "/healthz.json", examination),
        lambda: _health(admin, "/readyz.json?replication=all", examination),
        lambda: _statistics(admin, examination),
        lambda: _configuration(admin, configuration, examination),
    ]
    if with_log:
        steps.append(lambda: _log(admin, examination))
    for step in steps:
        try:
            step()
        except AdminRequestError as error:
            examination.add_attention(
                AREA,
                "what is shown",
                str(error),
                "some of what the instance knows is missing here",
                "ask as a user who may read it",
            )


def take_minidump(admin: AdminClient, examination: Examination) -> Path | None:
    """Request a new minidump, and return its path on the instance's machine."""
    try:
        text = admin.get("/amps/administrator/minidump.json").body
        path = json.loads(text)["amps"]["administrator"]["minidump"]
    except AdminRequestError as error:
        examination.add_attention(
            AREA,
            "a minidump",
            str(error),
            "none was written",
            "ask as a user who may do that, or send SIGQUIT to the process",
        )
        return None
    except (ValueError, KeyError, TypeError):
        path = ""
    written = _WRITTEN.fullmatch(path)
    if written is None:
        examination.add_attention(
            AREA, "a minidump", path or "no answer", "none was written", "see its log"
        )
        return None
    examination.add_ok(AREA, "a minidump", f"written to {written[1]}")
    return Path(written[1])


def _health(admin: AdminClient, path: str, examination: Examination) -> None:
    for check in admin.json(path)["checks"]:
        name = check["name"]
        if any(
            finding.area == _HEALTH and finding.name == name for finding in examination.findings
        ):
            continue  # both paths include the check of the engine
        status = check["status"]
        since = f" since {check['since']}" if check.get("since") else ""
        examination.add_finding(
            _HEALTH,
            name,
            f"{status}{since}",
            CheckVerdict.OK if status == "ok" else CheckVerdict.WRONG,
            "clients are kept away, or publishers wait for it",
            "docs/monitoring.md has what each check means",
        )


def _statistics(admin: AdminClient, examination: Examination) -> None:
    tree = admin.json("/amps.json")
    examination.documents["statistics/amps.json"] = tree
    instance = tree["amps"]["instance"]
    _judge_latencies(instance, examination)
    _judge_clients(instance, examination)
    _judge_behind(instance, "queues", "topic", "consumers do not keep up", examination)
    _judge_behind(instance, "replication", "name", "the destination does not keep up", examination)


def _judge_latencies(instance: Mapping[str, Any], examination: Examination) -> None:
    for latency in instance.get("latencies", ()):
        if latency["id"] != "turn":
            continue
        microseconds = float(latency["percentile_99"])
        examination.add_finding(
            "load",
            "pieces of work on the engine's thread",
            f"99 of 100 take up to {microseconds / 1000:.1f} ms",
            CheckVerdict.LOOK if microseconds > _LONG_TASK_US else CheckVerdict.OK,
            "all clients wait while one operation runs",
            "the log names the slow operations; /amps/instance/clients/ID/explain does per client",
        )


def _judge_clients(instance: Mapping[str, Any], examination: Examination) -> None:
    clients = instance.get("clients", ())
    slow = [client for client in clients if float(client["queue_max_latency"]) > 1.0]
    names = ", ".join(client["client_name"] for client in slow[:5])
    examination.add_finding(
        "load",
        "clients",
        f"{len(clients):,} connected, {len(slow):,} do not read their waiting messages",
        CheckVerdict.LOOK if slow else CheckVerdict.OK,
        f"messages wait in memory, then on disk, then the clients are disconnected: {names}",
        "amps/instance/clients/ID/explain says why a client is slow",
    )


def _judge_behind(
    instance: Mapping[str, Any], resource: str, name: str, reason: str, examination: Examination
) -> None:
    for entry in instance.get(resource, ()):
        seconds = float(entry["seconds_behind"])
        examination.add_finding(
            "load",
            f"{resource}: {entry[name]}",
            f"{seconds:,.0f} s behind",
            CheckVerdict.LOOK if seconds > _LONG_DELAY_S else CheckVerdict.OK,
            reason,
            f"look at /amps/instance/{resource}",
        )


def _configuration(admin: AdminClient, configuration: str | None, examination: Examination) -> None:
    """Compare the running configuration with its file, which may have been edited since."""
    running = admin.get("/amps/instance/config.xml").body
    if running == configuration:
        return
    examination.texts["configuration/running.xml"] = running
    if configuration is not None:
        examination.add_attention(
            AREA,
            "the configuration that runs",
            "differs from the file",
            "a configuration takes effect when the instance starts",
            "configuration/running.xml in the archive is what runs; restart for the file's",
        )


def _log(admin: AdminClient, examination: Examination) -> None:
    entries = admin.first_event("/console/log")
    lines = [f"{line}\n".encode() for entry in entries for line in str(entry["text"]).split("\n")]
    logs.examine_lines("recent.log", lines, examination)
