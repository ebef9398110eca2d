"""`amps-pipeline`: command line of the jobs over journals and topics.

Exit status: 0 success, 1 failure, 2 invalid command line, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import current_thread, main_thread
from types import FrameType
from typing import Final, Protocol, cast

from setproctitle import setproctitle

from amperage.client.uri import without_passwords
from pipeline.errors import PipelineError
from pipeline.jobs.run import JobRun
from server.app.command_line import CommandLineParser, make_parser

JOBS: Final[Mapping[str, str]] = {
    name: f"pipeline.jobs.{name}"
    for name in ("export", "replay", "rebuild", "history", "stats", "view", "check")
}
"""The modules of the jobs, by name."""

_ENDINGS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


_OF_JAVA: Final = re.compile(r": (?:[a-z]\w*\.)+\w+: ")
"""The prefix of Py4J's second line, before the message of the exception."""

_OURS: Final = re.compile(r"(?:^|\s)pipeline\.(?:\w+\.)+\w+Error: ")
"""The prefix of an error of the pipeline in an error text of another language."""

_OF_SPARK: Final = ("pyspark", "py4j", "pandas")
"""Modules that only the extra `pipeline` installs."""


class PipelineJob(Protocol):
    """The interface of a job's module."""

    HELP: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, JobRun], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job.

    Args:
        arguments: the command line without the program's name; the one of the process if None.

    Returns:
        The exit status.
    """
    try:
        with _signal_handlers():
            options = _parser().parse_args(arguments)
            _hide_passwords(sys.argv[1:] if arguments is None else arguments)
            conf = dict(options.conf + options.more)
            run = JobRun(options.master, conf, options.dry_run, options.quiet)
            _job(options.job).run(options, run)
    except PipelineError as problem:
        return _failed(str(problem))
    except ModuleNotFoundError as error:
        return _failed(_missing_module_text(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _ended(signal.SIGINT)
    except _EndedError as ending:
        return _ended(ending.number)
    except Exception as error:  # Spark wraps the errors of tasks in its own
        return _failed(_cause(error))
    return 0


class _EndedError(BaseException):
    """Ends the process; only `main` handles it.

    A KeyboardInterrupt would do the same, but the libraries between Spark and Python print a
    traceback of it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signal_handlers() -> Iterator[None]:
    """Raise an exception on a signal, so that partial files, and Spark's, are removed."""
    if current_thread() is not main_thread():  # signals are delivered to the main thread only
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signature of handlers
        raise _EndedError(number)

    before = {number: signal.signal(number, end) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(number: int) -> int:
    print(f"amps-pipeline: {_ENDINGS[signal.Signals(number)]}", file=sys.stderr)
    return 128 + number


def _failed(text: str) -> int:
    print(f"amps-pipeline: {text}", file=sys.stderr)
    return 1


def _missing_module_text(error: ModuleNotFoundError) -> str:
    """Return advice about a module that is not installed: Spark's modules come with an extra."""
    name = (error.name or "").partition(".")[0]
    if name not in _OF_SPARK:
        return _cause(error)
    return (
        f"Spark is not installed (no module {name}): "
        "pip install 'amperage[pipeline]', or make install in a checkout"
    )


def _cause(error: Exception) -> str:
    """Return the cause of an error, without Spark's traces."""
    lines = str(error).splitlines() or [type(error).__name__]
    messages = [line[match.end() :] for line in lines if (match := _OURS.search(line))]
    messages += [_OF_JAVA.sub("", line) for line in lines[1:2] if _OF_JAVA.match(line)]
    return messages[0] if messages else f"{type(error).__name__}: {lines[0]}"


def _hide_passwords(words: Sequence[str]) -> None:
    """Hide passwords in the command line from process listings, from now on."""
    shown = list(map(without_passwords, words))
    if shown != list(words):
        setproctitle(shlex.join(["amps-pipeline", *shown]))


def _job(name: str) -> PipelineJob:
    return cast("PipelineJob", import_module(JOBS[name]))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _parser() -> CommandLineParser:
    parser = make_parser("amps-pipeline", "Jobs over the journals and topics of AMPS servers.")
    _add_general(parser)
    parser.set_defaults(master="local[*]", dry_run=False, quiet=False)
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name in JOBS:
        job = _job(name)
        its_own = jobs.add_parser(name, help=job.HELP, description=_sentence(job.HELP))
        job.add_arguments(its_own)
        _add_general(its_own.add_argument_group("options of all jobs"), conf="more")
    return parser


def _add_general(to: argparse._ActionsContainer, conf: str = "conf") -> None:
    """Add the arguments of all jobs, which are accepted before and after the job's name.

    Args:
        to: the parser.
        conf: the attribute for settings; with the same one for both places, one of two lists would
            be lost.
    """
    to.add_argument("--master", default=argparse.SUPPRESS, help="Spark master; default: local[*]")
    to.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        type=_setting,
        action="append",
        default=[],
        dest=conf,
        help="Spark setting",
    )
    to.add_argument(
        "--dry-run",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print the work, and do not do it",
    )
    to.add_argument(
        "--quiet", action="store_true", default=argparse.SUPPRESS, help="show no progress"
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting: expected NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
