"""amps-action-do-extract-values: variables get the values of expressions over a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.expressions import ExpressionTemplate
from actions.internal_clients import body_of, message_type_of
from actions.module import Step
from server.expressions import ContextKind, parse, paths
from server.expressions.backends.compile_message import compile_value
from server.expressions.semantics import text
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions
    from server.message_types.base import Value


class DoExtractValues(Step):
    """Sets variables to values of a message; a value that is NULL, or unreadable, is empty."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._assignments: list[tuple[str, ExpressionTemplate[Callable[[bytes], Value]]]] = []

    def provision(self, services: ActionServices) -> None:
        """Prepare the expressions."""
        settings = services.engine.settings
        message_type = message_type_of(services, self.options)
        has_data = self.options.get("Data") is not None
        self._data = body_of(services, self.options, "Data") if has_data else None

        def compiled(text: str) -> Callable[[bytes], Value]:
            expr = parse(text, ContextKind.VALUE, settings.functions)
            extract = message_type.extractor(paths(expr))
            evaluate = compile_value(expr, settings.functions)
            return lambda body: evaluate(extract(body))

        for assignment in self.options.all("Value"):
            variable, _, expression = assignment.partition("=")
            self._assignments.append(
                (variable.strip(), ExpressionTemplate(expression.strip(), compiled))
            )

    async def run(self, context: ActionContext) -> None:
        """Read the message.

        Raises:
            StepError: with its variables filled in, an expression cannot be parsed.
        """
        if self._data is None:
            return
        body = self._data.expand(context)
        for variable, template in self._assignments:
            value = template.compile_expanded(context)(body)
            context[variable] = text_to_bytes(text(value) or "")
