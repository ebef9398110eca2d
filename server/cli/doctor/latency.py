"""Measures how long clients of a running instance wait for its engine, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.findings import CheckVerdict
from server.cli.doctor.admin_interface import AdminRequestError
from server.engine.delay_measurement import DelayKind

if TYPE_CHECKING:
    from server.cli.doctor.admin_interface import AdminClient
    from server.cli.doctor.findings import Examination

AREA: Final = "latency"

_LONG_US: Final = 20_000
"""A delay beyond this is a warning; aims of the message path are below it."""

_MAX_CAUSES: Final = 8

_EXPLANATIONS: Final = {
    DelayKind.WORK: (
        "clients wait while the engine does this work",
        "see the page of its client in the console; filters and indexes make the work shorter",
    ),
    DelayKind.COLLECTION: (
        "Python searches for garbage",
        "report it, with this line, if it comes back",
    ),
    DelayKind.OTHER_WORK: (
        "the engine reads and writes sockets, runs timers and takes samples",
        "have publishers send larger batches, or set a longer Admin/Interval",
    ),
    DelayKind.PROCESSOR: (
        "the engine is ready to run, and other threads or programs have the processors",
        "give the instance processors of its own (CPUAffinity of its service) or a priority",
    ),
    DelayKind.BLOCKED: (
        "the engine waits for another thread of the process or for a disk, or was stopped",
        "look at the disks, at TLS and compression of large messages, and at SQL statements",
    ),
}


def examine(admin: AdminClient, seconds: float, examination: Examination) -> None:
    """Measure the delays of an instance, and add them with their causes.

    Args:
        admin: its admin interface, with a time limit beyond that of the measurement.
        seconds: for how long to measure.
        examination: collects the findings.
    """
    try:
        answer = admin.json(f"/amps/instance/delays.json?for={seconds:g}s")
    except AdminRequestError as error:
        examination.add_attention(
            AREA,
            "delays of the engine",
            str(error),
            "they have not been measured",
            error.advice or "ask as a user who may read /amps/instance/delays",
        )
        return
    report = answer["amps"]["instance"]["delays"]
    examination.documents["statistics/delays.json"] = answer
    examination.add_finding(
        AREA,
        "delays of the engine",
        f"half of {int(report['calls']):,} below {_time(report['p50_us'])}, 99% below"
        f" {_time(report['p99_us'])}, 99.9% below {_time(report['p999_us'])}, the longest"
        f" {_time(report['longest_us'])}",
        _verdict(report["longest_us"]),
        "what clients send meanwhile waits for as long",
        "the next lines have the causes",
    )
    for cause in report["causes"][:_MAX_CAUSES]:
        reason, advice = _EXPLANATIONS[DelayKind(cause["kind"])]
        examination.add_finding(
            AREA,
            " ".join(filter(None, (cause["kind"], cause["name"], cause["client"]))),
            f"{int(cause['count']):,} times, {_time(cause['total_us'])} in all, the longest"
            f" {_time(cause['longest_us'])}",
            _verdict(cause["longest_us"]),
            reason,
            advice,
        )


def _verdict(longest_us: str) -> CheckVerdict:
    return CheckVerdict.WARNING if int(longest_us) > _LONG_US else CheckVerdict.OK


def _time(microseconds: str) -> str:
    number = int(microseconds)
    return f"{number} us" if number < 1000 else f"{number / 1000:.3g} ms"
