"""`amps-pipeline`: jobs over journals and topics, at the command line.

Exit status: 0 done, 1 it could not be done, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol, cast

from config_schema.version import AMPS_VERSION, VERSION
from pipeline.errors import PipelineError
from pipeline.jobs.run import Run

JOBS: Final[Mapping[str, str]] = {
    name: f"pipeline.jobs.{name}"
    for name in ("export", "replay", "rebuild", "history", "stats", "view", "check")
}
"""The jobs, by name, and their modules."""

_INTERRUPTED: Final = 130


class Job(Protocol):
    """What a job's module has."""

    HELP: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Run], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do a job.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status.
    """
    options = _parser().parse_args(arguments)
    run = Run(options.master, dict(options.conf), options.dry_run, options.quiet)
    try:
        _job(options.job).run(options, run)
    except PipelineError as problem:
        return _failed(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("amps-pipeline: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:  # Spark wraps what goes wrong in a task in errors of its own
        return _failed(_cause(error))
    return 0


def _failed(text: str) -> int:
    print(f"amps-pipeline: {text}", file=sys.stderr)
    return 1


def _cause(error: Exception) -> str:
    """What went wrong, without Spark's account of where that was."""
    lines = str(error).splitlines() or [type(error).__name__]
    mark = f"{PipelineError.__module__}.{PipelineError.__name__}: "
    told = [line.partition(mark)[2] for line in lines if mark in line]
    return told[0] if told else f"{type(error).__name__}: {lines[0]}"


def _job(name: str) -> Job:
    return cast("Job", import_module(JOBS[name]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps-pipeline", description="Jobs over the journals and topics of AMPS servers."
    )
    parser.add_argument("--master", default="local[*]", help="where Spark runs (local[*])")
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="a setting of Spark's",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--version", action="version", version=f"amps-pipeline {VERSION} (AMPS {AMPS_VERSION})"
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name in JOBS:
        job = _job(name)
        job.add_arguments(jobs.add_parser(name, help=job.HELP, description=job.HELP.capitalize()))
    return parser


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: expected NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
