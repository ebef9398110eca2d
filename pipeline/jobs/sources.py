"""The arguments that say what a job reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    import argparse

    from pipeline.entries import Source


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say what to read."""
    parser.add_argument(
        "source", type=Path, help="directory of journals, or of what the job export made of them"
    )
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument("--topic", default="", help="topic, or regular expression of topics")


def source_of(options: argparse.Namespace, **more: str) -> Source:
    """Return the source that the arguments name.

    Raises:
        PipelineError: there is no such directory.
    """
    from pipeline.entries import Source  # a command line is read without Spark

    if not options.source.is_dir():
        raise PipelineError(f"{options.source}: there is no such directory")
    # Spark's workers have a working directory of their own.
    archive = None if options.archive is None else options.archive.resolve()
    return Source(options.source.resolve(), archive, options.topic, **more)
