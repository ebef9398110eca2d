"""Short reports of errors: the cause in one paragraph, without traces of Spark and Java.

Spark passes an error of a Python process on as a text, with its traceback, and shows that text at
several places. So the processes that Spark starts omit the traceback of a `PipelineError`, which
explains itself (`brief_errors`). In the program, `install_excepthook` shows the lines of the
program's own code and the cause. Java logs failed tasks and queries without stack traces
(`log4j2_configuration`).
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from pipeline.errors import PipelineError

_Class = TypeVar("_Class", bound=type[Any])

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""The variable by which PySpark knows whether to omit the traceback of an error."""

_CAUSE: Final = re.compile(r"(?:^|\s)pipeline\.(?:\w+\.)+(\w+Error: .*)")
"""An error of the pipeline in the text of an error of Spark."""

_PACKAGE: Final = re.escape(str(Path(__file__).parent))
_OF_LIBRARIES: Final = re.compile(
    rf"^{_PACKAGE}[/\\]|[/\\](?:pyspark|py4j)[/\\]|pyspark\.zip|<frozen "
)
"""Matches the names of files of libraries, and of this package."""

_SPARK: Final = "org.apache.spark."
_BRIEF_LOGGERS: Final = (
    _SPARK + "scheduler.TaskSetManager",
    _SPARK + "sql.execution.datasources.FileFormatWriter",
    _SPARK + "sql.execution.datasources.v2.AppendDataExec",
    _SPARK + "sql.execution.streaming.runtime.MicroBatchExecution",
)
"""Loggers whose entries have no stack traces; their level is that of all others."""

_QUIET_LOGGERS: Final = {
    _SPARK + "executor.Executor": "off",
    _SPARK + "SparkConf": "error",
    _SPARK + "sql.execution.datasources.DataSourceManager": "error",
    _SPARK + "sql.execution.streaming.runtime.ResolveWriteToStream": "error",
    "org.apache.hadoop.util.NativeCodeLoader": "error",
}
"""Loggers and their levels. `TaskSetManager` repeats the entries of `Executor`; the others warn of
actions of this package, and of conditions that are harmless here."""

_LOG4J2: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.full.ref = full
appender.full.type = Console
appender.full.name = full
appender.full.target = SYSTEM_ERR
appender.full.layout.type = PatternLayout
appender.full.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
appender.brief.type = Console
appender.brief.name = brief
appender.brief.target = SYSTEM_ERR
appender.brief.layout.type = PatternLayout
appender.brief.layout.alwaysWriteExceptions = false
appender.brief.layout.pattern = \\
  %d{yy/MM/dd HH:mm:ss} %p %c{1}: %replace{%m%n%ex}{(?m)^((\\tat |\\t[.][.][.] )[^\\n]*)?\\n}{}
"""


def brief_errors(source: _Class) -> _Class:
    """Make the public methods of a class report a PipelineError without its traceback.

    Errors of other classes are faults of this package, and are reported with theirs.

    Args:
        source: a class whose methods Spark calls.

    Returns:
        The class.
    """
    for name, method in list(vars(source).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(source, name, _brief(method))
    return source


def cause_of(error: BaseException) -> str | None:
    """Return class and text of the PipelineError that an error has been made from, if any.

    Args:
        error: an error of this package, or one of Spark.
    """
    if isinstance(error, PipelineError):
        return f"{type(error).__name__}: {error}"
    match = _CAUSE.search(str(error))
    return None if match is None else match[1]


def install_excepthook() -> None:
    """Show errors that end the program in short form, if they come from this package."""
    show_error = sys.excepthook

    def show_briefly(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        cause = cause_of(error)
        if cause is None:
            show_error(kind, error, trace)
            return
        frames = [
            frame
            for frame in traceback.extract_tb(trace)
            if _OF_LIBRARIES.search(frame.filename) is None
        ]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
        print(*lines, cause, sep="", file=sys.stderr)

    sys.excepthook = show_briefly


def log4j2_configuration(directory: Path) -> Path:
    """Write a configuration of the logs of Java, and return its path.

    Args:
        directory: the directory for the file.
    """
    path = directory / "log4j2.properties"
    path.write_text(_LOG4J2 + "".join(_logger_lines()))
    return path


def _logger_lines() -> Iterator[str]:
    for number, name in enumerate(_BRIEF_LOGGERS):
        yield f"logger.brief{number}.name = {name}\n"
        yield f"logger.brief{number}.additivity = false\n"
        yield f"logger.brief{number}.appenderRef.brief.ref = brief\n"
    for number, (name, level) in enumerate(_QUIET_LOGGERS.items()):
        yield f"logger.quiet{number}.name = {name}\n"
        yield f"logger.quiet{number}.level = {level}\n"


def _brief(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that reports a PipelineError without its traceback."""
    if isgeneratorfunction(method):

        @wraps(method)
        def yield_all(*arguments: Any, **named: Any) -> Any:
            try:
                yield from method(*arguments, **named)
            except PipelineError:
                _hide_traceback()
                raise

        return yield_all

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except PipelineError:
            _hide_traceback()
            raise

    return call


def _hide_traceback() -> None:
    """Make PySpark omit the traceback, in a process that Spark has started and that ends now."""
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    if specification is not None and specification.name.startswith("pyspark."):
        os.environ[_HIDE_TRACEBACK] = "1"
