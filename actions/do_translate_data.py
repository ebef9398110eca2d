"""amps-action-do-translate-data: a value becomes another by a list of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step
from actions.options import optional, required, template

if TYPE_CHECKING:
    from actions.context import ActionContext, VariableTemplate
    from actions.step_options import StepOptions


class DoTranslateData(Step):
    """Sets a variable to the translation of a value: of the first case that has it, or the default.

    Without a default, anything else is translated into itself.
    """

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._data = required(options, "Data")
        self._variable = options.get("Value") or ""
        self._default = optional(options, "Default")
        self._cases = [_case(options, text) for text in options.all("Case")]

    async def run(self, context: ActionContext) -> None:
        """Translate."""
        data = self._data.expand(context)
        default = data if self._default is None else self._default.expand(context)
        context[self._variable] = next(
            (
                translated.expand(context)
                for original, translated in self._cases
                if original.expand(context) == data
            ),
            default,
        )


def _case(options: StepOptions, text: str) -> tuple[VariableTemplate, VariableTemplate]:
    original, _, translated = text.partition("=")
    return template(options, "Case", original.strip()), template(
        options, "Case", translated.strip()
    )
