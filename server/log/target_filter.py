"""The selection of the messages that a logging target writes.

Logging is opt-in: a target writes the messages selected by its Level, Levels or IncludeErrors,
without those named by ExcludeErrors. All of this is known when the instance starts, so it is
computed once, for every id of the catalogue, and again when an operator overrides the level.

Source: AMPS User Guide, Configuring Logging.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.log.catalogue import CATALOGUE, matching
from server.log.levels import Level, parse_level


def select(spec: LogTargetSpec, problems: Problems) -> frozenset[str]:
    """Return the ids of the messages that the target writes.

    Unknown levels and invalid regular expressions are added to `problems` as errors, and lists that
    match no message of this server as remarks.
    """
    lowest = Level.NONE
    if spec.level is not None:
        lowest = next(_levels(spec, "Level", (spec.level,), problems), Level.NONE)
    levels = set(_levels(spec, "Levels", spec.levels, problems))
    message_ids = {
        message.id
        for message in CATALOGUE.values()
        if message.level >= lowest or message.level in levels
    }
    message_ids |= _named(spec, "IncludeErrors", spec.include_errors, problems)
    message_ids -= excluded(spec, problems)
    return frozenset(message_ids)


@dataclass(frozen=True, slots=True)
class LevelOverride:
    """A level that a target has instead of the configured selection, for a time.

    Attributes:
        level: the lowest level that it writes.
        pattern: a regular expression for the ids that it applies to; None for all ids.
    """

    level: Level
    pattern: str | None = None

    def __str__(self) -> str:
        """Return the level, and the ids if it does not apply to all."""
        return self.level.label + ("" if self.pattern is None else f" for {self.pattern}")


def select_overridden(spec: LogTargetSpec, override: LevelOverride) -> frozenset[str]:
    """Return the ids of the messages that the target writes with an override.

    IncludeErrors applies to ids that the override does not name; ExcludeErrors applies to all.

    Raises:
        re.error: the pattern is not a regular expression.
    """
    problems = Problems()  # those of the configuration have been reported
    if override.pattern is None:
        return select(replace(spec, level=override.level.label, levels=()), problems)
    messages = matching(override.pattern)
    selected = {message.id for message in messages if message.level >= override.level}
    others = select(spec, problems) - {message.id for message in messages}
    return others | (selected - excluded(spec, problems))


def excluded(spec: LogTargetSpec, problems: Problems) -> frozenset[str]:
    """Return the ids that ExcludeErrors excludes, which takes precedence over all selections."""
    return _named(spec, "ExcludeErrors", spec.exclude_errors, problems)


def _levels(
    spec: LogTargetSpec, element: str, names: tuple[str, ...], problems: Problems
) -> Iterator[Level]:
    for name in names:
        try:
            yield parse_level(name)
        except ValueError as problem:
            problems.error(spec, f"Target/{element}", str(problem))


def _named(
    spec: LogTargetSpec, element: str, patterns: tuple[str, ...], problems: Problems
) -> frozenset[str]:
    ids: set[str] = set()
    for pattern in patterns:
        try:
            matches = {message.id for message in matching(pattern)}
        except re.error as problem:
            problems.error(
                spec,
                f"Target/{element}",
                f"'{pattern}' is neither a message id nor a regular expression: {problem}",
                "write ids like 00-0015, or expressions like 12-.*, separated by commas",
            )
            continue
        if not matches:
            problems.info(
                spec,
                f"Target/{element}",
                f"no message of this server has an id that matches '{pattern}'",
                "ampserr lists the ids that there are",
            )
        ids |= matches
    return frozenset(ids)
