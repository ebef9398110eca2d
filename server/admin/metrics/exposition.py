"""Families of metrics as text: OpenMetrics 1.0, and Prometheus' own older form.

Source: OpenMetrics 1.0, Text Format; Prometheus, Exposition Formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

OPEN_METRICS: Final = "application/openmetrics-text"
"""The media type that clients of the newer format name in Accept."""


class ExpositionFormat(Enum):
    """A text format, and its content type."""

    OPEN_METRICS = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class MetricSample(NamedTuple):
    """A line.

    Attributes:
        suffix: follows the name of the family, such as `_bucket`.
        labels: see `labels`.
        value: the number.
    """

    suffix: str
    labels: str
    value: float


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All series of one name.

    Attributes:
        name: without the suffix that its type has (`_total`, `_info`).
        type: counter, gauge, histogram or info.
        description: its description.
        samples: its lines.
        unit: the end of its name, if it is a base unit: seconds, bytes, ratio.
    """

    name: str
    type: str
    description: str
    samples: list[MetricSample]
    unit: str = ""


_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def counter(
    name: str, description: str, samples: Iterable[tuple[str, float]], unit: str = ""
) -> MetricFamily:
    """Return a family of a value that only grows, from pairs of labels and number."""
    return MetricFamily(
        name, "counter", description, [MetricSample("_total", *sample) for sample in samples], unit
    )


def gauge(
    name: str, description: str, samples: Iterable[tuple[str, float]], unit: str = ""
) -> MetricFamily:
    """Return a family of a value that goes up and down, from pairs of labels and number."""
    return MetricFamily(
        name, "gauge", description, [MetricSample("", *sample) for sample in samples], unit
    )


def labels(pairs: Mapping[str, str]) -> str:
    """Return labels as text: in braces, or nothing if there are none."""
    text = ",".join([f'{name}="{_quoted(value)}"' for name, value in pairs.items()])
    return f"{{{text}}}" if text else ""


def render(families: Iterable[MetricFamily], form: ExpositionFormat) -> bytes:
    """Return a document of all families that have any samples."""
    write = _open_metrics if form is ExpositionFormat.OPEN_METRICS else _prometheus
    lines = [line for family in families if family.samples for line in write(family)]
    if form is ExpositionFormat.OPEN_METRICS:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode(errors="replace")


def form_for(accept: str) -> ExpositionFormat:
    """Return the format for an Accept header: OpenMetrics only for a header that names it."""
    best = {"open": 0.0, "text": 0.0}
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name == OPEN_METRICS:
            if _parameter(parameters, "version", "1.0.0") in ("1.0.0", "1.0", "0.0.1"):
                best["open"] = max(best["open"], _weight(parameters))
        elif name in ("text/plain", "text/*"):
            best["text"] = max(best["text"], _weight(parameters))
    is_open = best["open"] > 0 and best["open"] >= best["text"]
    return ExpositionFormat.OPEN_METRICS if is_open else ExpositionFormat.PROMETHEUS


def _parameter(parameters: Iterable[str], name: str, default: str) -> str:
    pairs = (part.partition("=") for part in parameters)
    return next((value.strip('"') for key, _, value in pairs if key == name), default)


def _weight(parameters: Iterable[str]) -> float:
    try:
        return float(_parameter(parameters, "q", "1"))
    except ValueError:
        return 0.0


def _open_metrics(family: MetricFamily) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.type}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {_quoted(family.description)}"
    yield from _samples(family)


def _prometheus(family: MetricFamily) -> Iterator[str]:
    """Yield lines: in the older format names always have the suffix, and type `info` is missing."""
    name = family.name + _SUFFIXES.get(family.type, "")
    description = family.description.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {'gauge' if family.type == 'info' else family.type}"
    yield from _samples(family)


def _samples(family: MetricFamily) -> Iterator[str]:
    name = family.name
    for suffix, label_text, value in family.samples:
        yield f"{name}{suffix}{label_text} {value}"


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
