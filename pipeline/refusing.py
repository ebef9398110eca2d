"""A stream that cannot be.

Spark loses the error of a source that makes no stream reader among errors of its own. So there is
one, which has the error to tell when it is asked where the stream begins or goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pipeline.errors import PipelineError


class RefusingStreamReader(DataSourceStreamReader):
    """Reads nothing.

    Args:
        error: why.
    """

    def __init__(self, error: PipelineError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises the error, where a query is new."""
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises the error, where a query goes on."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002 - Spark's
        """Raises the error, where a query has to repeat a micro-batch."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - Spark's
        """Never called."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """A stream reader, or one that tells why there is none.

    Args:
        make: makes it; raises PipelineError if it cannot be.
    """
    try:
        return make()
    except PipelineError as error:
        return RefusingStreamReader(error)
