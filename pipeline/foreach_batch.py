"""Functions for `foreachBatch` with errors that are safe for Spark to parse.

When a query is stopped while such a function runs, Spark searches the text of its error for the
reason, with the regular expression `…((.|\\r\\n|\\r|\\n)*)(…)`: Java recurses once for each
character, and the query's thread dies of a StackOverflowError after some thousands. An error from
Java is that long, because it includes the stack traces of all its causes. So these are removed.

Source: org.apache.spark.sql.execution.streaming.runtime.StreamExecution.isInterruptionException.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchHandler = Callable[["DataFrame", int], None]

_PREFIX: Final = "py4j.protocol.Py4JJavaError: "
_MAX_ERROR_LENGTH: Final = 1500
"""Characters that the stack of any Java thread can process."""


class BatchError(Exception):
    """An error in Java while a micro-batch was processed, without Java's stack traces."""


def shorten_java_errors(process_batch: BatchHandler) -> BatchHandler:
    """Shorten the errors of Java.

    Args:
        process_batch: processes a micro-batch, given its rows and its number.
    """

    @wraps(process_batch)
    def call(batch: DataFrame, number: int) -> None:
        try:
            process_batch(batch, number)
        except Py4JJavaError as error:
            raise BatchError(_brief(str(error))) from None

    return call


def _brief(text: str) -> str:
    """Return the lines with the error, without the indented lines of the stack trace.

    They begin with the text by which Spark recognizes errors of Java.
    """
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    return _PREFIX + "\n".join(lines)[:_MAX_ERROR_LENGTH]
