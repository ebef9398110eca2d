"""Checks of a running instance by its admin interface: identity, health, statistics."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.admin.diagnosis.findings import CheckFinding, CheckVerdict
from server.admin.diagnosis.sample_checks import HEALTH, LOAD
from server.cli.doctor import logs
from server.cli.doctor.admin_interface import AdminClient, AdminRequestError
from server.cli.doctor.findings import Examination

AREA: Final = "admin interface"
_WRITTEN: Final = re.compile(r"Minidump written to (.*)\.")


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
    admin: AdminClient,
    configuration: str | None,
    examination: Examination,
    *,
    with_log: bool,
    with_files: bool,
) -> None:
    """Collect the state that an instance reports, and check its health.

    Args:
        admin: its admin interface.
        configuration: text of its configuration file, redacted; None if unknown.
        examination: collects the findings.
        with_log: request the end of the log, too, since there is no file of it.
        with_files: add its findings about files, too, which are not examined here.
    """
    steps: list[Callable[[], None]] = [
        lambda: _findings(admin, examination, with_files=with_files),
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


def _findings(admin: AdminClient, examination: Examination, *, with_files: bool) -> None:
    """Add the instance's own findings.

    Args:
        admin: its admin interface.
        examination: collects the findings.
        with_files: whether to add those about its files.
    """
    document = admin.json("/amps/instance/findings.json")["amps"]["instance"]["findings"]
    verdicts = {verdict.label: verdict for verdict in CheckVerdict}
    for check in document["checks"]:
        if with_files or check["area"] in (HEALTH, LOAD):
            examination.findings.append(
                CheckFinding(
                    check["area"],
                    check["name"],
                    verdicts[check["verdict"]],
                    f"{check['value']} since {check['since']}"
                    if check["since"]
                    else check["value"],
                    check["reason"],
                    check["advice"],
                )
            )


def _statistics(admin: AdminClient, examination: Examination) -> None:
    examination.documents["statistics/amps.json"] = admin.json("/amps.json")


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
