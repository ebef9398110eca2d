"""The options of `format("amps-journal")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import Filter

from config_schema.units import UnitError, parse_size
from pipeline import tolerance
from pipeline.errors import INSTEAD_OF_TABLES, OptionError, is_asked, option_error
from pipeline.filters import OPTION, PUSHDOWN, read_filters, refuse_pushdown
from pipeline.journal.columns import COMMANDS
from pipeline.kafka_names import with_own_names
from pipeline.tolerance import STRICT, Tolerance, read_tolerance
from server.expressions import ExpressionError, parse
from server.expressions.topic_names import TopicError, select_topics
from server.storage.journal import BookmarkError, parse_bookmark

_DEFAULT_PARTITION_SIZE: Final = 128 << 20  # the size into which Spark splits files
_MIN_PARTITION_SIZE: Final = 1 << 16

_KNOWN: Final = frozenset(
    (
        "archive",
        "bookmark",
        "commands",
        "damaged",
        "fail_on_data_loss",
        "filter",
        "instance",
        "max_rows_per_trigger",
        "message_type",
        "path",
        "piece_size",
        OPTION,
        "topic",
        *tolerance.NAMES,
    )
)


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The options of a read.

    Attributes:
        path: a directory of journal files, or one such file.
        archive: the directory of archived journals.
        instance: the instance of the journals; empty for all.
        topic: a topic, or a regular expression of topics; empty for all.
        message_type: only topics of that message type; empty for all.
        bookmark: the beginning, or a range; empty for all.
        filter: a content filter; empty for none.
        commands: the commands of the entries to read.
        skips_damaged: whether damaged entries are skipped; otherwise they are an error.
        piece_size: bytes per task.
        where: Spark's filters that are tested while reading; Spark applies them, too.
        max_rows_per_trigger: the maximum number of entries in a micro-batch; None for no limit.
        fail_on_data_loss: whether a stream stops if entries are missing.
        tolerance: how messages are read, and how messages that do not fit are handled.
    """

    path: Path
    archive: Path | None = None
    instance: str = ""
    topic: str = ""
    message_type: str = ""
    bookmark: str = ""
    filter: str = ""
    commands: tuple[str, ...] = ("publish", "delta_publish")
    skips_damaged: bool = False
    piece_size: int = _DEFAULT_PARTITION_SIZE
    where: tuple[Filter, ...] = ()
    max_rows_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    tolerance: Tolerance = STRICT


def read_options(options: Mapping[str, str]) -> JournalOptions:
    """Read the options that Spark passes.

    Raises:
        PipelineError: an option is unknown, missing or invalid; the text names it.
    """
    options_by_name = with_own_names({name.lower(): text for name, text in options.items()})
    refuse_pushdown(options_by_name.pop(PUSHDOWN, "false"))
    for name in filter(is_asked, options_by_name.keys() - _KNOWN):
        near = get_close_matches(name, _KNOWN, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise OptionError(f"option {name}: unknown{hint}")
    if not options_by_name.get("path"):
        raise OptionError(
            "option path: missing; expected load(DIRECTORY) (Spark does not pass options of a table"
            f" to sources in Python: {INSTEAD_OF_TABLES})"
        )
    _check_path(options_by_name["path"])
    archive = options_by_name.get("archive")
    checked = JournalOptions(
        Path(options_by_name["path"].removeprefix("file:")),
        Path(archive) if archive else None,
        options_by_name.get("instance", ""),
        options_by_name.get("topic", ""),
        options_by_name.get("message_type", ""),
        options_by_name.get("bookmark", ""),
        options_by_name.get("filter", ""),
        _commands(options_by_name.get("commands", "publish,delta_publish")),
        _choice(options_by_name, "damaged", "fail", "skip"),
        _size(options_by_name.get("piece_size")),
        tuple(read_filters(options_by_name.get(OPTION, "[]"))),
        _count(options_by_name, "max_rows_per_trigger"),
        not _choice(options_by_name, "fail_on_data_loss", "true", "false"),
        read_tolerance(options_by_name),
    )
    _check_texts(checked)
    return checked


def _check_path(path: str) -> None:
    """Refuse a path that is not on this machine.

    Raises:
        PipelineError: it is not.
    """
    scheme, separator, _ = path.partition("://")
    if separator and scheme != "file":
        raise option_error(
            "path", path, "expected a directory of this machine, or one mounted on it"
        )
    if any(sign in path for sign in "*?{,") and not Path(path).exists():
        raise option_error(
            "path", path, "expected one directory or one journal file; union several DataFrames"
        )


def _commands(text: str) -> tuple[str, ...]:
    names = tuple(COMMANDS) if text.strip() == "all" else tuple(map(str.strip, text.split(",")))
    for name in names:
        if name not in COMMANDS:
            raise option_error("commands", text, f"expected all, or some of {', '.join(COMMANDS)}")
    return names


def _choice(options_by_name: Mapping[str, str], name: str, default: str, other: str) -> bool:
    """Return whether an option with two values has the non-default one."""
    value = options_by_name.get(name, default).lower()
    if value not in (default, other):
        raise option_error(name, value, f"expected {default} or {other}")
    return value == other


def _count(options_by_name: Mapping[str, str], name: str) -> int | None:
    text = options_by_name.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise option_error(name, text, "expected a whole number from 1")
    return int(text)


def _size(text: str | None) -> int:
    if text is None:
        return _DEFAULT_PARTITION_SIZE
    try:
        size = parse_size(text)
    except UnitError as problem:
        raise option_error("piece_size", text, str(problem)) from problem
    if size < _MIN_PARTITION_SIZE:
        raise option_error("piece_size", text, f"expected {_MIN_PARTITION_SIZE} bytes or more")
    return size


def _check_texts(options: JournalOptions) -> None:
    try:
        if options.topic:
            select_topics(options.topic)
    except TopicError as problem:
        raise option_error("topic", options.topic, str(problem)) from problem
    try:
        if options.bookmark:
            parse_bookmark(options.bookmark)
    except BookmarkError as problem:
        raise option_error("bookmark", options.bookmark, str(problem)) from problem
    try:
        if options.filter:
            parse(options.filter)
    except ExpressionError as problem:
        raise option_error("filter", options.filter, str(problem)) from problem
