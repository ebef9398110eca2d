"""The options of a command: a comma separated list of flags and name=value pairs.

A value in square brackets may have commas of its own: `replace,select=[-/,+/id]`. Every option that
the reference knows has a line in the table below; one that cannot be honoured is refused with the
reason, since a subscriber that gets something else than it asked for is worse off than one that
gets an error.

Source: AMPS Command Reference, Options Field of the subscribe and delta_subscribe commands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.units import UnitError, parse_interval
from server.commands.refusal import CommandRefused
from server.message_types.paths import PathError, parse_path
from server.message_types.pretty import pretty_printer
from server.message_types.selection import SelectionError, parse_selection
from server.subscriptions.conflation import AUTOMATIC_INTERVAL, ConflationTerms
from server.subscriptions.presentation import Presentation, SelectList
from server.wire.header import Header

if TYPE_CHECKING:
    from server.message_types.base import MessageType, Path

_OPTION: Final = re.compile(
    r"\s*(?P<name>[^,=\[\]]+?)\s*(?:=\s*(?P<value>\[[^\]]*\]|[^,]*))?\s*(?:,|$)"
)
_NANOSECONDS: Final = 1e9

HONOURED: Final = frozenset(
    {"conflation", "conflation_key", "non_regex_topic", "replace", "select", "timestamp"}
)

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "none": "it is the same as no option",
    "bookmark": "messages that are not in a transaction log have no bookmark",
    "live": "only a replay could wait for messages to be persisted",
    "max_backlog": "only queues have a backlog",
    "no_empties": "without a record to compare with, no message is empty",
    "no_sowkey": "messages of topics without records have no SOW key",
    "send_empties": "without a record to compare with, no message is empty",
    "send_keys": "without a record to compare with, messages are sent whole",
}
"""Options that ask for what is the case anyway on a topic that keeps nothing, and why."""

REFUSED: Final[Mapping[str, str]] = {
    "bookmark_not_found": "only subscriptions that replay from a transaction log take it",
    "fully_durable": "only subscriptions that replay from a transaction log take it",
    "grouping": "only topics that keep records can be aggregated",
    "oof": "only topics that keep records know which of them go out of focus",
    "pause": "only subscriptions that replay from a transaction log can be paused",
    "projection": "only topics that keep records can be aggregated",
    "rate": "only subscriptions that replay from a transaction log have a rate",
    "rate_max_gap": "only subscriptions that replay from a transaction log have a rate",
    "resume": "only subscriptions that replay from a transaction log can be paused",
    "skip_n": "only topics that keep records can be paged through",
    "top_n": "only topics that keep records can be paged through",
}
"""Options that a topic that keeps nothing cannot honour, and why."""


@dataclass(frozen=True, slots=True)
class LogonOptions:
    """What a client asked for at its logon.

    Attributes:
        ack_conflation: seconds over which `persisted` acks of publishes are merged.
        pretty: whether it wants binary bodies in a form that people can read.
    """

    ack_conflation: float = 1.0
    pretty: bool = False


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """What a subscriber asked for besides topic and filter.

    Attributes:
        replace: take the place of the subscription with the same id.
        literal_topic: take the topic's name as it stands.
        presentation: the form in which messages are wanted.
        conflation: how messages with the same key are merged, None for not at all.
    """

    replace: bool
    literal_topic: bool
    presentation: Presentation
    conflation: ConflationTerms | None


def read_logon_options(header: Header) -> LogonOptions:
    """Read the options of a logon command (AMPS Command Reference, logon command: Options Field).

    Options that are not known are passed over: a client of another version has to get in first.

    Raises:
        CommandRefused: an option is malformed.
    """
    options = split_options(header.options or "")
    interval = options.get("ack_conflation")
    try:
        seconds = 1.0 if interval is None else parse_interval(interval) / _NANOSECONDS
    except UnitError as error:
        raise _refusal("ack_conflation", str(error)) from None
    return LogonOptions(seconds, pretty=options.get("pretty", "false").lower() == "true")


def read_subscribe_options(
    header: Header, message_type: MessageType, *, pretty: bool
) -> SubscribeOptions:
    """Read the options of a subscribe command.

    Args:
        header: the command's header.
        message_type: the message type of the connection.
        pretty: whether the connection wants binary bodies in a form that people can read.

    Raises:
        CommandRefused: an option is unknown, malformed or cannot be honoured.
    """
    options = split_options(header.options or "")
    for name in options:
        if name in REFUSED:
            raise _refusal(name, REFUSED[name])
        if name not in HONOURED and name not in WITHOUT_EFFECT:
            raise _refusal(name, f"it is no option of {header.command}")
    return SubscribeOptions(
        replace="replace" in options,
        literal_topic="non_regex_topic" in options,
        presentation=Presentation(
            select=_select_list(options, message_type),
            timestamp="timestamp" in options,
            pretty=pretty_printer(message_type) if pretty else None,
        ),
        conflation=_conflation(options),
    )


def split_options(text: str) -> Mapping[str, str]:
    """Split an option list into names, in lower case, and values; a flag's value is empty.

    Raises:
        CommandRefused: the text is no list of options.
    """
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None:
            raise CommandRefused(
                "invalid option", f"expected an option at position {position} of {text!r}"
            )
        options[match["name"].lower()] = (match["value"] or "").strip()
        position = match.end()
    return options


def _select_list(options: Mapping[str, str], message_type: MessageType) -> SelectList | None:
    text = options.get("select")
    if text is None:
        return None
    if not message_type.capabilities.select:
        raise _refusal("select", f"messages of type {message_type.name} have no select lists")
    try:
        return SelectList(text, parse_selection(_unbracketed("select", text)), message_type)
    except SelectionError as error:
        raise _refusal("select", str(error)) from None


def _conflation(options: Mapping[str, str]) -> ConflationTerms | None:
    interval = options.get("conflation", "none").lower()
    if interval == "none":
        if "conflation_key" in options:
            raise _refusal("conflation_key", "it goes with the option conflation only")
        return None
    keys = _unbracketed("conflation_key", options.get("conflation_key", "[]"))
    if not keys:
        raise _refusal(
            "conflation", "a topic that keeps no records needs conflation_key=[...] with it"
        )
    paths = tuple(_path(key.strip()) for key in keys.split(","))
    if interval == "auto":
        return ConflationTerms(AUTOMATIC_INTERVAL, automatic=True, keys=paths)
    try:
        seconds = parse_interval(interval) / _NANOSECONDS
    except UnitError as error:
        raise _refusal("conflation", str(error)) from None
    return ConflationTerms(seconds, automatic=False, keys=paths)


def _path(text: str) -> Path:
    try:
        return parse_path(text)
    except PathError as error:
        raise _refusal("conflation_key", str(error)) from None


def _unbracketed(name: str, text: str) -> str:
    if not (text.startswith("[") and text.endswith("]")):
        raise _refusal(name, f"expected a list in brackets and not {text!r}")
    return text[1:-1].strip()


def _refusal(name: str, why: str) -> CommandRefused:
    return CommandRefused("invalid option", f"option {name} cannot be used here: {why}")
