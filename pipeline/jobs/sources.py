"""The arguments that select the source of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    import argparse

    from pipeline.entries import EntrySource


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the source."""
    parser.add_argument("source", type=Path, help="directory of journals, or of an export of them")
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument("--topic", default="", help="topic, or regular expression of topics")


def source_of(options: argparse.Namespace, **more: str) -> EntrySource:
    """Return the source that the arguments select.

    Raises:
        PipelineError: there is no such directory.
    """
    from pipeline.entries import EntrySource  # parsing a command line must not import Spark

    if not options.source.is_dir():
        raise PipelineError(f"{options.source}: no such directory")
    # Spark's workers have another working directory.
    archive = None if options.archive is None else options.archive.resolve()
    return EntrySource(options.source.resolve(), archive, options.topic, **more)
