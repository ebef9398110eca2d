"""The targets of the log, and the operation that sets their levels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from config_schema.units import parse_interval
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.log.level_overrides import CONFIGURED_LEVEL
from server.log.levels import parse_level
from server.log.target_filter import LevelOverride
from server.storage.sow.records import NANOSECONDS

if TYPE_CHECKING:
    from server.log.level_overrides import LevelOverrides

_DEFAULT_DURATION: Final = "10m"


def log_target_group(levels: LevelOverrides) -> OperationGroup:
    """Return the targets of the log; their levels can be set for a time."""

    async def set_level(number: str, parameters: OperationParameters) -> str:
        target = levels.targets.get(number)
        if target is None:
            raise OperationError(f"There is no log target {number} any more.")
        label = parameters["level"]
        if label == CONFIGURED_LEVEL:
            levels.reset(target)
            return f"{target.name} has the configured level."
        try:
            override = LevelOverride(parse_level(label), parameters.get("message") or None)
            seconds = parse_interval(parameters.get("for") or _DEFAULT_DURATION) / NANOSECONDS
            levels.override(target, override, seconds)
        except (ValueError, re.error) as error:
            raise OperationError(f"The level of {target.name} cannot be set: {error}.") from None
        return f"{target.name} has the level {override} for {seconds:g} s."

    parameters = ("level", "message", "for")
    description = "set its level for a time"
    operations = (
        AdminOperation("level", description, set_level, ("level",), audited_parameters=parameters),
    )
    return OperationGroup(
        ("logging", "targets"),
        operations,
        lambda: {number: target.name for number, target in levels.targets.items()},
    )
