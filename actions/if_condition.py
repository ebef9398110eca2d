"""amps-action-if-condition: the action goes on only if a filter over its variables is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.expressions import ExpressionTemplate
from actions.module import Condition
from server.expressions import ContextKind, parse, paths
from server.expressions.backends.compile_message import compile_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.context import ActionContext
    from actions.services import ActionServices


class IfCondition(Condition):
    """Goes on if a filter is true. There is no message, so that fields in it are NULL."""

    def provision(self, services: ActionServices) -> None:
        """Prepare the expression."""
        functions = services.engine.settings.functions

        def compiled(text: str) -> Callable[[], bool]:
            expr = parse(text, ContextKind.CONDITION, functions)
            predicate, no_values = compile_filter(expr, functions), (None,) * len(paths(expr))
            return lambda: predicate(no_values)

        self._condition = ExpressionTemplate(self.options.get("Condition") or "", compiled)

    async def holds(self, context: ActionContext) -> bool:
        """Return true if the condition holds.

        Raises:
            StepError: with its variables filled in, it cannot be parsed.
        """
        return self._condition.compile_expanded(context)()
