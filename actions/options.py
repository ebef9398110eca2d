"""Options of action modules, read when a module runs: their values may hold variables.

The configuration has been checked (actions/catalogue.py), so that only what a variable brought in
can still be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from actions.context import Context, Template
from actions.module import StepFailed
from config_schema.units import UnitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from config_schema.spec import Options

_Value = TypeVar("_Value")


def required(options: Options, name: str) -> Template:
    """An option that the catalogue says is always there."""
    return Template(options.get(name) or "")


def optional(options: Options, name: str) -> Template | None:
    """An option that may be left out."""
    text = options.get(name)
    return None if text is None else Template(text)


def quantity(
    name: str, template: Template, context: Context, parse: Callable[[str], _Value]
) -> _Value:
    """Read an interval, a number or the like.

    Args:
        name: the option.
        template: its text.
        context: the variables.
        parse: reads it; raises UnitError.

    Raises:
        StepFailed: with the variables filled in it is none.
    """
    try:
        return parse(template.expand_text(context))
    except UnitError as error:
        raise StepFailed(f"{name}: {error}") from None
