"""Options of action modules, parsed when a module runs: their values may hold variables.

The configuration has been checked (actions/catalogue.py), so that only the value of a variable
can still be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from actions.context import ActionContext, VariableTemplate
from actions.module import StepError
from actions.value_escapes import TEMPLATES, TopicTemplate
from config_schema.units import UnitError, parse_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.step_options import StepOptions

_NANOSECONDS: Final = 1e9

_OptionT = TypeVar("_OptionT")


def required(options: StepOptions, name: str) -> VariableTemplate:
    """Return the template of an option that is always there, or has a default."""
    rule = options.rule(name)
    return TEMPLATES[rule.value](options.get(name) or rule.default or "")


def optional(options: StepOptions, name: str) -> VariableTemplate | None:
    """Return the template of an option; None if it is left out."""
    return None if options.get(name) is None else required(options, name)


def topic_of(options: StepOptions) -> TopicTemplate:
    """Return the template of the option Topic, where that may be a regular expression."""
    return TopicTemplate(options.get("Topic") or "")


def template(options: StepOptions, name: str, text: str) -> VariableTemplate:
    """Return the template of a part of an option."""
    return TEMPLATES[options.rule(name).value](text)


def quantity(
    name: str, template: VariableTemplate, context: ActionContext, parse: Callable[[str], _OptionT]
) -> _OptionT:
    """Read an interval, a number or the like.

    Args:
        name: the option.
        template: its text.
        context: the variables.
        parse: reads it; raises UnitError.

    Raises:
        StepError: with the variables filled in it is none.
    """
    try:
        return parse(template.expand_text(context))
    except UnitError as error:
        raise StepError(f"{name}: {error}") from None


def interval_s(name: str, template: VariableTemplate, context: ActionContext) -> float:
    """Read an interval, in seconds; see `quantity`."""
    return quantity(name, template, context, parse_interval) / _NANOSECONDS


def fixed_interval_s(text: str) -> float:
    """Return an interval that has no variables, in seconds."""
    return parse_interval(text) / _NANOSECONDS


class AgeOption:
    """The option Age: how old something has to be for a step to process it.

    Args:
        options: the options of the step.
    """

    def __init__(self, options: StepOptions) -> None:
        self._template: Final = required(options, "Age")

    def read_s(self, context: ActionContext) -> float:
        """Return the age in seconds.

        Raises:
            StepError: with the variables filled in it is no interval.
        """
        return interval_s("Age", self._template, context)
