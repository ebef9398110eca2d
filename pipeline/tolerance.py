"""Handling of messages that do not fit the schema: the option `mode` and related ones.

    failfast     an error, which stops the query
    permissive   a row with NULL fields; the message goes to the corrupt record column, if the
                 schema has it
    drop         nothing

A batch is first built as if all messages did fit. If one does not, the batch is halved repeatedly
until the message is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from pipeline.errors import PipelineError, SchemaError, option_error
from pipeline.times import TIMESTAMPS

if TYPE_CHECKING:
    from pipeline.expressions.environment import Environment

FAILFAST: Final = "failfast"
PERMISSIVE: Final = "permissive"
DROP: Final = "drop"

_MODES: Final[Mapping[str, str]] = {
    FAILFAST: FAILFAST,
    PERMISSIVE: PERMISSIVE,
    DROP: DROP,
    "dropmalformed": DROP,
}
_CORRUPT_RECORD: Final = "_corrupt_record"

NAMES: Final = ("mode", "corrupt_record_column", "timestamps", "config")
"""The options, common to all sources."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How messages are read.

    Attributes:
        mode: one of `failfast`, `permissive` and `drop`.
        corrupt_record_column: the column for messages that do not fit.
        timestamps: the form of times, one of `times.TIMESTAMPS`; None for the message type's.
        environment: the message types of a configuration; None without one.
    """

    mode: str = FAILFAST
    corrupt_record_column: str = _CORRUPT_RECORD
    timestamps: str | None = None
    environment: Environment | None = None

    def corrupt_column(self, schema: StructType) -> str | None:
        """Return the column for messages that do not fit, if the schema has it.

        Raises:
            PipelineError: its type cannot hold a message.
        """
        name = self.corrupt_record_column
        if name not in schema.names:
            return None
        kind = schema[name].dataType
        if not isinstance(kind, (StringType, BinaryType)):
            raise SchemaError(
                f"schema: column {name!r} is {kind.simpleString()}, expected string or binary: it"
                " is for messages that do not fit"
            )
        return name


STRICT: Final = Tolerance()
"""The default."""


def read_tolerance(options: Mapping[str, str]) -> Tolerance:
    """Read the options.

    Args:
        options: all options, by their names in lower case.

    Raises:
        PipelineError: an option has an invalid value, or the configuration cannot be used.
    """
    mode = options.get("mode", FAILFAST)
    if mode.lower() not in _MODES:
        raise option_error("mode", mode, f"expected {FAILFAST}, {PERMISSIVE} or {DROP}")
    timestamps = options.get("timestamps")
    if timestamps is not None and timestamps.lower() not in TIMESTAMPS:
        *others, last = TIMESTAMPS
        raise option_error("timestamps", timestamps, f"expected {', '.join(others)} or {last}")
    column = options.get("corrupt_record_column", _CORRUPT_RECORD)
    if not column.strip():
        raise option_error("corrupt_record_column", column, "it is empty")
    timestamps = timestamps and timestamps.lower()
    return Tolerance(_MODES[mode.lower()], column, timestamps, _environment(options.get("config")))


def _environment(config: str | None) -> Environment | None:
    if config is None:
        return None
    # The reader of configurations is the server's; only a read with a configuration imports it.
    from pipeline.configuration import read_configuration
    from pipeline.expressions.environment import Environment

    return Environment(read_configuration(config))


class BatchBuilder(Protocol):
    """Builds rows of some messages."""

    def __call__(self, start: int, stop: int, *, fits: bool) -> pa.RecordBatch:
        """Return rows of the messages from `start` to before `stop`, without fields if not `fits`.

        Raises:
            PipelineError: one does not fit.
        """


def tolerated(make: BatchBuilder, count: int, mode: str) -> Iterator[pa.RecordBatch]:
    """Yield rows of messages, some of which may not fit.

    Args:
        make: builds the rows.
        count: the number of messages.
        mode: the handling of messages that do not fit.

    Raises:
        PipelineError: a message does not fit, and the mode is `failfast`.
    """
    return _tolerated(make, 0, count, mode)


def _tolerated(make: BatchBuilder, start: int, stop: int, mode: str) -> Iterator[pa.RecordBatch]:
    try:
        batch = make(start, stop, fits=True)
    except PipelineError:
        if mode == FAILFAST:
            raise
        batch = None
    if batch is not None:
        yield batch
    elif stop - start > 1:
        middle = (start + stop) // 2
        yield from _tolerated(make, start, middle, mode)
        yield from _tolerated(make, middle, stop, mode)
    elif mode == PERMISSIVE:
        yield make(start, stop, fits=False)
