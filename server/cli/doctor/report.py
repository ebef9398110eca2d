"""The report of an examination, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from config_schema.version import VERSION
from server.cli.doctor.findings import CheckFinding, CheckVerdict, Examination

_INDENT: Final = " " * 18


def as_data(found: Examination, moment: datetime) -> dict[str, Any]:
    """Return the examination as JSON values."""
    counts = _counts(found)
    return {
        "command": f"amps-doctor {VERSION}",
        "time": moment.isoformat(),
        "instance": _name(found),
        "verdict": found.worst_verdict.label,
        "counts": {verdict.label: counts[verdict] for verdict in CheckVerdict},
        "checks": [
            {
                "number": number,
                "area": one.area,
                "name": one.name,
                "verdict": one.verdict.label,
                "value": one.value,
                "reason": one.reason,
                "advice": one.advice,
            }
            for number, one in enumerate(found.findings, 1)
        ],
        "facts": found.facts,
    }


def as_text(found: Examination, moment: datetime) -> str:
    """Return the examination as text, the worst findings first."""
    return "\n".join([*_lines(found, moment), ""])


def instance_name(found: Examination) -> str:
    """Return the instance's name, with characters that are safe in a file name."""
    safe = "".join(one if one.isalnum() or one in "-_." else "_" for one in _name(found))
    return safe or "unknown"


def _lines(found: Examination, moment: datetime) -> Iterator[str]:
    counts = _counts(found)
    name = _name(found) or "that is not known"
    yield f"amps-doctor {VERSION}: instance {name}, {moment:%Y-%m-%d %H:%M:%S %Z}"
    yield (
        f"{len(found.findings)} checks: {counts[CheckVerdict.WRONG]} wrong,"
        f" {counts[CheckVerdict.LOOK]} to look at, {counts[CheckVerdict.OK]} OK"
    )
    numbered = [*enumerate(found.findings, 1)]
    for verdict in sorted(CheckVerdict, reverse=True):
        those = [pair for pair in numbered if pair[1].verdict is verdict]
        if those:
            yield ""
        for number, one in those:
            yield from _finding(number, one)


def _finding(number: int, one: CheckFinding) -> Iterator[str]:
    label = "WRONG" if one.verdict is CheckVerdict.WRONG else one.verdict.label
    yield f"{label:12} {number:>3}  {one.area}: {one.name}: {one.value}"
    if one.reason:
        yield f"{_INDENT}{one.reason}"
    if one.advice:
        yield f"{_INDENT}-> {one.advice}"


def _counts(found: Examination) -> dict[CheckVerdict, int]:
    return {
        verdict: sum(one.verdict is verdict for one in found.findings) for verdict in CheckVerdict
    }


def _name(found: Examination) -> str:
    for area, key in (("instance", "name"), ("configuration", "instance")):
        about = found.facts.get(area)
        if isinstance(about, dict) and about.get(key):
            return str(about[key])
    return ""
