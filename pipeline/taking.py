"""Functions for `foreachBatch` whose errors Spark can read.

When a query is stopped while such a function is at work, Spark looks through the text of its error
for the reason, with the regular expression `…((.|\\r\\n|\\r|\\n)*)(…)`: Java goes one call deeper
for each character, and the query's thread dies of a StackOverflowError if there are some thousands.
An error of Java's has as many, for it comes with all of its calls, of each of its causes. So these
are left out.

Source: org.apache.spark.sql.execution.streaming.runtime.StreamExecution.isInterruptionException.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Take = Callable[["DataFrame", int], None]

_MARK: Final = "py4j.protocol.Py4JJavaError: "
_LONGEST: Final = 1500
"""Characters that go through any stack that threads of Java have."""


class BatchError(Exception):
    """What went wrong in Java while a micro-batch was dealt with, without Java's calls."""


def briefly(take: Take) -> Take:
    """Have errors of Java's told in short.

    Args:
        take: deals with a micro-batch, of which it is given the rows and the number.
    """

    @wraps(take)
    def call(batch: DataFrame, number: int) -> None:
        try:
            take(batch, number)
        except Py4JJavaError as error:
            raise BatchError(_brief(str(error))) from None

    return call


def _brief(text: str) -> str:
    """The lines that say what it was, and not where: those are indented.

    They begin with what Spark knows errors of Java's by.
    """
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    return _MARK + "\n".join(lines)[:_LONGEST]
