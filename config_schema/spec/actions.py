"""The actions of the instance, with their triggers."""

from dataclasses import dataclass
from typing import Literal

from config_schema.problems import Location
from config_schema.spec.common import ModuleUse


@dataclass(frozen=True, slots=True)
class ActionStep:
    """One Do or If of an Action; an If that does not hold ends the action's run."""

    kind: Literal["do", "if"]
    use: ModuleUse


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One Action: any of `triggers` (its On elements) runs `steps` in file order."""

    triggers: tuple[ModuleUse, ...]
    steps: tuple[ActionStep, ...]
    location: Location
