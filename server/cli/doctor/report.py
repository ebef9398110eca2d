"""The report of an examination, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from config_schema.version import VERSION
from server.admin.diagnosis.findings import CheckFinding, CheckVerdict
from server.cli.doctor.findings import VERDICT_LABELS, Examination

_INDENT: Final = " " * 18


def as_data(examination: Examination, moment: datetime) -> dict[str, Any]:
    """Return the examination as JSON values."""
    counts = _counts(examination)
    return {
        "command": f"amps-doctor {VERSION}",
        "time": moment.isoformat(),
        "instance": _name(examination),
        "verdict": VERDICT_LABELS[examination.worst_verdict],
        "counts": {VERDICT_LABELS[verdict]: counts[verdict] for verdict in CheckVerdict},
        "checks": [
            {
                "number": number,
                "area": finding.area,
                "name": finding.name,
                "verdict": VERDICT_LABELS[finding.verdict],
                "value": finding.value,
                "reason": finding.reason,
                "advice": finding.advice,
            }
            for number, finding in enumerate(examination.findings, 1)
        ],
        "facts": examination.facts,
    }


def as_text(examination: Examination, moment: datetime) -> str:
    """Return the examination as text, the worst findings first."""
    return "\n".join([*_lines(examination, moment), ""])


def instance_name(examination: Examination) -> str:
    """Return the instance's name, with characters that are safe in a file name."""
    safe = "".join(
        character if character.isalnum() or character in "-_." else "_"
        for character in _name(examination)
    )
    return safe or "unknown"


def _lines(examination: Examination, moment: datetime) -> Iterator[str]:
    counts = _counts(examination)
    name = _name(examination) or "that is not known"
    yield f"amps-doctor {VERSION}: instance {name}, {moment:%Y-%m-%d %H:%M:%S %Z}"
    yield (
        f"{len(examination.findings)} checks: {counts[CheckVerdict.ERROR]} wrong,"
        f" {counts[CheckVerdict.WARNING]} to look at, {counts[CheckVerdict.OK]} OK"
    )
    numbered = [*enumerate(examination.findings, 1)]
    for verdict in sorted(CheckVerdict, reverse=True):
        selected = [pair for pair in numbered if pair[1].verdict is verdict]
        if selected:
            yield ""
        for number, finding in selected:
            yield from _finding(number, finding)


def _finding(number: int, finding: CheckFinding) -> Iterator[str]:
    label = "WRONG" if finding.verdict is CheckVerdict.ERROR else VERDICT_LABELS[finding.verdict]
    yield f"{label:12} {number:>3}  {finding.area}: {finding.name}: {finding.value}"
    if finding.reason:
        yield f"{_INDENT}{finding.reason}"
    if finding.advice:
        yield f"{_INDENT}-> {finding.advice}"


def _counts(examination: Examination) -> dict[CheckVerdict, int]:
    return {
        verdict: sum(finding.verdict is verdict for finding in examination.findings)
        for verdict in CheckVerdict
    }


def _name(examination: Examination) -> str:
    for area, key in (("instance", "name"), ("configuration", "instance")):
        about = examination.facts.get(area)
        if isinstance(about, dict) and about.get(key):
            return str(about[key])
    return ""
