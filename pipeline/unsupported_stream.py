"""A stream reader that reports an error.

If a source creates no stream reader, Spark hides the error among its own. So this reader is
created, which raises the error when Spark asks for the first or the next offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from pipeline.error_reports import brief_errors
from pipeline.errors import PipelineError


@brief_errors
class UnsupportedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader that raises an error.

    Args:
        error: the error.
    """

    def __init__(self, error: PipelineError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error, if a query is new."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the error, if a query has this trigger."""
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error, if a query resumes."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002 - Spark's
        """Raise the error, if a query has to repeat a micro-batch."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - Spark's
        """Raise the error; never called."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Return a stream reader, or one that raises the error of its creation.

    Args:
        make: creates the reader; may raise PipelineError.
    """
    try:
        return make()
    except PipelineError as error:
        return UnsupportedStreamReader(error)
