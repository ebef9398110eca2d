"""Logging targets.

Source: AMPS User Guide, Configuring Logging and Logging to Syslog.
"""

import re
from typing import Final, get_args

from config_schema.compile.reader import ElementReader, did_you_mean
from config_schema.regex import has_regex_characters, regex_error
from config_schema.spec import LogProtocol, LogTargetSpec
from config_schema.units import parse_rotation_threshold, quoted

PROTOCOLS: Final[tuple[LogProtocol, ...]] = get_args(LogProtocol)
LEVELS: Final = (
    "developer",
    "trace",
    "stats",
    "info",
    "warning",
    "error",
    "critical",
    "emergency",
    "none",
)
LEVEL_SYNONYMS: Final = {"debug": "info"}
SYSLOG_OPTIONS: Final = (
    "LOG_CONS",
    "LOG_NDELAY",
    "LOG_NOWAIT",
    "LOG_ODELAY",
    "LOG_PERROR",
    "LOG_PID",
)
FACILITIES: Final = ("LOG_USER", *(f"LOG_LOCAL{number}" for number in range(8)))

_PART_OF_ID: Final = re.compile(r"[0-9A-F]{1,2}|[0-9A-F]{0,2}-[0-9]{0,4}", re.IGNORECASE)
"""A part of an id, which selects all ids that contain it: `12-` for a category."""

_TO_FILE: Final = ("file", "gzip")


def compile_logging(root: ElementReader) -> tuple[LogTargetSpec, ...]:
    """Compile the Logging section."""
    targets: list[LogTargetSpec] = []
    for reader in root.section_children("Logging", "Target"):
        target = _target(reader)
        for earlier in targets:
            if target.file_name is not None and target.file_name == earlier.file_name:
                reader.warning(
                    f"{quoted(target.file_name)} is also the file of the target at "
                    f"{earlier.location}; their lines will mix",
                    tag="FileName",
                )
        targets.append(target)
    return tuple(targets)


def _target(reader: ElementReader) -> LogTargetSpec:
    reader.required("Protocol")
    protocol = reader.choice("Protocol", PROTOCOLS, "stdout")
    _check_elements(reader, protocol)
    levels = tuple(_level(reader, "Levels", word) for word in reader.words("Levels"))
    level = reader.text("Level") or ""
    target = LogTargetSpec(
        protocol=protocol,
        level=_level(reader, "Level", level) or None,
        levels=levels,
        include_errors=_message_ids(reader, "IncludeErrors"),
        exclude_errors=_message_ids(reader, "ExcludeErrors"),
        file_name=reader.text("FileName") if protocol in _TO_FILE else None,
        rotation_threshold=reader.quantity(
            "RotationThreshold", parse_rotation_threshold, minimum="1B"
        ),
        ident=reader.text("Ident"),
        options=_syslog_options(reader),
        facility=reader.choice("Facility", FACILITIES, "LOG_USER")
        if protocol == "syslog"
        else None,
        location=reader.location,
    )
    if not any(reader.text(tag) for tag in ("Level", "Levels", "IncludeErrors")):
        reader.warning(
            "takes no messages, because it has neither Level, Levels nor IncludeErrors",
            "<Level>info</Level> is usual",
        )
    return target


def _check_elements(reader: ElementReader, protocol: LogProtocol) -> None:
    if protocol in _TO_FILE:
        if not reader.text("FileName"):
            reader.warning(
                "is missing: the file is named after the time of the start, %Y-%m-%dT%H%M%S.log, "
                "and put into the working directory",
                tag="FileName",
            )
    else:
        reader.warn_no_effect(
            ("FileName", "RotationThreshold"), f"the target is {protocol}, not a file"
        )
    if protocol != "syslog":
        reader.warn_no_effect(
            ("Ident", "Options", "Facility"), f"the target is {protocol}, not syslog"
        )


def _level(reader: ElementReader, tag: str, word: str) -> str:
    level = word.lower()
    if level in LEVEL_SYNONYMS:
        meaning = LEVEL_SYNONYMS[level]
        reader.info(f"{quoted(word)} is an old name, taken as {meaning}", tag=tag)
        return meaning
    if level and level not in LEVELS:
        reader.error(
            f"{quoted(word)} is not a level: expected {', '.join(LEVELS)}",
            did_you_mean(level, LEVELS),
            tag=tag,
        )
    return level


def _message_ids(reader: ElementReader, tag: str) -> tuple[str, ...]:
    ids = reader.words(tag)
    for word in ids:
        error = regex_error(word)
        if error is not None:
            reader.error(f"{quoted(word)} is not a regular expression: {error}", tag=tag)
        elif not has_regex_characters(word) and not _PART_OF_ID.fullmatch(word):
            reader.error(
                f"{quoted(word)} is not the id of a message: expected one such as 00-0015, "
                "a part of it such as 12-, or a regular expression such as 12-.*",
                tag=tag,
            )
    return tuple(ids)


def _syslog_options(reader: ElementReader) -> tuple[str, ...]:
    options = tuple(word.upper() for word in reader.words("Options"))
    for option in options:
        if option not in SYSLOG_OPTIONS:
            reader.refuse_word("Options", option, "an option of syslog", SYSLOG_OPTIONS)
    return options
