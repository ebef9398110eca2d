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
_LATE_SECONDS: Final = 60.0
_SLOW_TURN: Final = 100_000.0
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


def identify(admin: AdminClient, found: Examination) -> InstanceIdentity | None:
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
        _refused(admin, error, found)
        return None
    except (ValueError, KeyError, TypeError):
        found.add_wrong(
            AREA,
            admin.url,
            "answers, but not as an instance does",
            "something else listens there, or statistics cannot be read",
            "look at the address: Admin/InetAddr of the configuration",
        )
        return None
    uptime = str(about.get("uptime", "")).partition(".")[0]
    found.add_ok(AREA, admin.url, f"instance {identity.name}, up {uptime} at its last sample")
    return identity


def _refused(admin: AdminClient, error: AdminRequestError, found: Examination) -> None:
    if error.status in (401, 403):
        found.add_attention(
            AREA,
            admin.url,
            str(error),
            "the instance runs, and does not show anything to this user",
            "give --user with --password-file, or AMPS_ADMIN_USER and AMPS_ADMIN_PASSWORD,"
            " of somebody who may read /amps",
        )
        return
    found.add_wrong(
        AREA,
        admin.url,
        str(error),
        "the instance does not run, is not ready yet, or its admin interface cannot be reached",
        error.advice or "the log says why it ended, or what it is at",
    )


def examine(
    admin: AdminClient, configuration: str | None, found: Examination, *, with_log: bool
) -> None:
    """Collect the state that an instance reports, and check its health.

    Args:
        admin: its admin interface.
        configuration: text of its configuration file, redacted; None if unknown.
        found: collects the findings.
        with_log: request the end of the log, too, since there is no file of it.
    """
    steps: list[Callable[[], None]] = [
        lambda: _health(admin, "/healthz.json", found),
        lambda: _health(admin, "/readyz.json?replication=all", found),
        lambda: _statistics(admin, found),
        lambda: _configuration(admin, configuration, found),
    ]
    if with_log:
        steps.append(lambda: _log(admin, found))
    for step in steps:
        try:
            step()
        except AdminRequestError as error:
            found.add_attention(
                AREA,
                "what is shown",
                str(error),
                "some of what the instance knows is missing here",
                "ask as a user who may read it",
            )


def take_minidump(admin: AdminClient, found: Examination) -> Path | None:
    """Request a new minidump, and return its path on the instance's machine."""
    try:
        text = admin.get("/amps/administrator/minidump.json").body
        said = json.loads(text)["amps"]["administrator"]["minidump"]
    except AdminRequestError as error:
        found.add_attention(
            AREA,
            "a minidump",
            str(error),
            "none was written",
            "ask as a user who may do that, or send SIGQUIT to the process",
        )
        return None
    except (ValueError, KeyError, TypeError):
        said = ""
    written = _WRITTEN.fullmatch(said)
    if written is None:
        found.add_attention(
            AREA, "a minidump", said or "no answer", "none was written", "see its log"
        )
        return None
    found.add_ok(AREA, "a minidump", f"written to {written[1]}")
    return Path(written[1])


def _health(admin: AdminClient, path: str, found: Examination) -> None:
    for check in admin.json(path)["checks"]:
        name = check["name"]
        if any(one.area == _HEALTH and one.name == name for one in found.findings):
            continue  # both paths include the check of the engine
        status = check["status"]
        since = f" since {check['since']}" if check.get("since") else ""
        found.add_finding(
            _HEALTH,
            name,
            f"{status}{since}",
            CheckVerdict.OK if status == "ok" else CheckVerdict.WRONG,
            "clients are kept away, or publishers wait for it",
            "docs/monitoring.md has what each check means",
        )


def _statistics(admin: AdminClient, found: Examination) -> None:
    tree = admin.json("/amps.json")
    found.documents["statistics/amps.json"] = tree
    instance = tree["amps"]["instance"]
    _judge_latencies(instance, found)
    _judge_clients(instance, found)
    _judge_behind(instance, "queues", "topic", "consumers do not keep up", found)
    _judge_behind(instance, "replication", "name", "the destination does not keep up", found)


def _judge_latencies(instance: Mapping[str, Any], found: Examination) -> None:
    for one in instance.get("latencies", ()):
        if one["id"] != "turn":
            continue
        microseconds = float(one["percentile_99"])
        found.add_finding(
            "load",
            "pieces of work on the engine's thread",
            f"99 of 100 take up to {microseconds / 1000:.1f} ms",
            CheckVerdict.LOOK if microseconds > _SLOW_TURN else CheckVerdict.OK,
            "everybody waits while one piece of work is done",
            "the log names what takes long; /amps/instance/clients/ID/explain does per client",
        )


def _judge_clients(instance: Mapping[str, Any], found: Examination) -> None:
    clients = instance.get("clients", ())
    slow = [one for one in clients if float(one["queue_max_latency"]) > 1.0]
    names = ", ".join(one["client_name"] for one in slow[:5])
    found.add_finding(
        "load",
        "clients",
        f"{len(clients):,} connected, {len(slow):,} do not take what waits for them",
        CheckVerdict.LOOK if slow else CheckVerdict.OK,
        f"what waits is kept in memory, then on disk, then they are disconnected: {names}",
        "amps/instance/clients/ID/explain says why a client is slow",
    )


def _judge_behind(
    instance: Mapping[str, Any], resource: str, name: str, reason: str, found: Examination
) -> None:
    for one in instance.get(resource, ()):
        seconds = float(one["seconds_behind"])
        found.add_finding(
            "load",
            f"{resource}: {one[name]}",
            f"{seconds:,.0f} s behind",
            CheckVerdict.LOOK if seconds > _LATE_SECONDS else CheckVerdict.OK,
            reason,
            f"look at /amps/instance/{resource}",
        )


def _configuration(admin: AdminClient, configuration: str | None, found: Examination) -> None:
    """Compare the running configuration with its file, which may have been edited since."""
    running = admin.get("/amps/instance/config.xml").body
    if running == configuration:
        return
    found.texts["configuration/running.xml"] = running
    if configuration is not None:
        found.add_attention(
            AREA,
            "the configuration that runs",
            "is not what the file says now",
            "a configuration takes effect when the instance starts",
            "configuration/running.xml in the archive is what runs; restart for the file's",
        )


def _log(admin: AdminClient, found: Examination) -> None:
    entries = admin.first_event("/console/log")
    lines = [f"{line}\n".encode() for one in entries for line in str(one["text"]).split("\n")]
    logs.examine_lines("recent.log", lines, found)
