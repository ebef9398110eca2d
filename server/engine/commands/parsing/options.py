"""The options of a command: a comma separated list of flags and name=value pairs.

A value in square brackets may contain commas: `replace,select=[-/,+/id]`. Every option of the
reference has an entry in the tables below. An option that cannot be honoured is refused with the
reason: a subscriber is worse off with other messages than it requested than with an error.

Source: AMPS Command Reference, Options Field of the subscribe and delta_subscribe commands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from amperage.wire.header import Header
from config_schema.units import UnitError, parse_interval
from server.engine.commands.errors import CommandRefusedError
from server.message_types.paths import PathError, parse_path
from server.message_types.pretty import pretty_printer
from server.message_types.select_list import SelectionError, parse_selection
from server.topics.subscriptions.delivery.conflation import AUTOMATIC_INTERVAL, ConflationTerms
from server.topics.subscriptions.delivery.presentation import AS_PUBLISHED, Presentation, SelectList
from server.util.limits import MAX_CONFLATION_KEYS, MAX_SELECTED_FIELDS

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.message_types.base import MessageType
    from server.message_types.paths import Path

_STRINGS: Final = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_NESTED: Final = rf"""\[(?:[^\[\]'"]|{_STRINGS}|\[(?:[^\[\]'"]|{_STRINGS})*+\])*+\]"""
"""Expressions in brackets, with strings and with identifiers like `[topic].[/field]`."""
_OPTION: Final = re.compile(
    rf"(?P<name>[^,=\[\]]++)(?:=\s*+(?P<value>{_NESTED}|\[[^\]]*+\]|[^,]*+)\s*+)?(?:,[\s,]*+|$)"
)
"""One option with its separator. Client libraries join options by a comma behind each.

Possessive quantifiers (`*+`) rule out backtracking, which would not end on a hostile text.
"""
_MAX_OPTIONS: Final = 100
"""More than there are; each one may require a read to the end of the text."""
_NANOSECONDS: Final = 1e9

HONOURED: Final = frozenset(
    {
        "bookmark",
        "conflation",
        "conflation_key",
        "non_regex_topic",
        "replace",
        "select",
        "timestamp",
    }
)
HONOURED_WITH_RECORDS: Final = HONOURED | {"no_empties", "no_sowkey", "oof"}
HONOURED_BY_QUERIES: Final = frozenset(
    {"no_sowkey", "non_regex_topic", "select", "skip_n", "timestamp", "top_n"}
)
HONOURED_BY_REPLAYS: Final = frozenset(
    {
        "bookmark_not_found",
        "conflation",
        "conflation_key",
        "deletions",
        "fully_durable",
        "live",
        "no_sowkey",
        "non_regex_topic",
        "pause",
        "places",
        "rate",
        "rate_max_gap",
        "replace",
        "resume",
        "select",
        "timestamp",
    }
)
HONOURED_BY_COUNTS: Final = frozenset(
    {
        "bookmark_not_found",
        "count",
        "count_bytes",
        "count_parts",
        "deletions",
        "fully_durable",
        "non_regex_topic",
    }
)
_MAX_DIGITS: Final = 9
AGGREGATION_OPTIONS: Final = ("projection", "grouping")
QUERY_COMMANDS: Final = frozenset({"sow_and_subscribe", "sow_and_delta_subscribe"})

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "none": "it is the same as no option",
    "live": "only a replay could wait for messages to be persisted",
    "max_backlog": "only queues have a backlog",
    "no_empties": "without a record to compare with, no message is empty",
    "no_sowkey": "messages of topics without records have no SOW key",
    "places": "only a replay has a place in the log",
    "send_empties": "empty messages are sent unless no_empties is given",
    "send_keys": "a message always has the fields that its SOW key is made from",
}
"""Options that request the regular behaviour, and why."""

WITHOUT_EFFECT_ON_REPLAYS: Final[Mapping[str, str]] = {
    "none": "it is the same as no option",
    "bookmark": "messages of a replay always have their bookmarks",
    "max_backlog": "only messages of queues are leased, and a replay is none of a queue",
    "oof": "a replay sends published messages; it does not follow records",
    "send_empties": "a replay sends every message",
    "send_keys": "a message always has the fields that its SOW key is made from",
}
WITHOUT_EFFECT_ON_COUNTS: Final[Mapping[str, str]] = {
    "none": "it is the same as no option",
    "no_sowkey": "nothing is sent",
    "places": "the position where it ends is always reported",
    "select": "whole messages are counted",
    "timestamp": "nothing is sent",
}
WITHOUT_EFFECT_ON_QUERIES: Final[Mapping[str, str]] = {
    "none": "it is the same as no option",
    "oof": "a query alone does not follow records",
    "places": "a query alone has no place in the log",
    "replace": "a query alone has no subscription that could take the place of another",
    "send_empties": "a query sends every record that it finds",
    "send_keys": "a record always has the fields that its SOW key is made from",
}

REFUSED: Final[Mapping[str, str]] = {
    "bookmark_not_found": "only subscriptions that replay from a transaction log take it",
    "deletions": "only subscriptions that replay from a transaction log take it",
    "fully_durable": "only subscriptions that replay from a transaction log take it",
    "grouping": "only queries, and subscriptions that begin with one, can be aggregated",
    "pause": "only subscriptions that replay from a transaction log can be paused",
    "projection": "only queries, and subscriptions that begin with one, can be aggregated",
    "rate": "only subscriptions that replay from a transaction log have a rate",
    "rate_max_gap": "only subscriptions that replay from a transaction log have a rate",
    "resume": "only subscriptions that replay from a transaction log can be paused",
}
"""Options that cannot be honoured, and why."""

REFUSED_WITHOUT_RECORDS: Final[Mapping[str, str]] = {
    "oof": "only topics that keep records know which of them go out of focus",
    "skip_n": "only topics that keep records can be paged through",
    "top_n": "only topics that keep records can be paged through",
}
"""Options that are refused on a topic without records, and why."""

REFUSED_BY_REPLAYS: Final[Mapping[str, str]] = {
    "grouping": "a replay from a bookmark cannot be aggregated",
    "projection": "a replay from a bookmark cannot be aggregated",
}
"""Options that are refused with a replay, and why."""

REFUSED_BY_DELETES: Final[Mapping[str, str]] = {
    "cancel": "only messages of queues go back to where they came from",
    "expire": "only messages of queues are acknowledged",
}
"""Options that are refused with a deletion of records, and why."""


@dataclass(frozen=True, slots=True)
class SessionLogonOptions:
    """The options of a client's logon, which its session keeps.

    Attributes:
        ack_conflation_s: seconds over which `persisted` acks of publishes are merged.
        pretty: whether binary bodies are sent in a form that people can read.
        correlation_id: the correlation id of the logon.
    """

    ack_conflation_s: float = 1.0
    pretty: bool = False
    correlation_id: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """The options of a subscription.

    Attributes:
        is_replacement: replace the subscription with the same id.
        presentation: the form in which messages are sent.
        conflation: how messages with the same key are conflated, None for not at all.
        tracks_focus: notify the client of records that match no more.
        no_empties: send no message in which no field differs.
    """

    is_replacement: bool
    presentation: Presentation
    conflation: ConflationTerms | None
    tracks_focus: bool
    no_empties: bool


def read_logon_options(header: Header) -> SessionLogonOptions:
    """Read the options of a logon command (AMPS Command Reference, logon command: Options Field).

    Unknown options are ignored: a client of another version must be able to log on.

    Raises:
        CommandRefusedError: an option is malformed.
    """
    options = split_options(header.options or "")
    interval = options.get("ack_conflation")
    try:
        seconds = 1.0 if interval is None else parse_interval(interval) / _NANOSECONDS
    except UnitError as error:
        raise option_refusal("ack_conflation", str(error)) from None
    is_pretty = options.get("pretty", "false").lower() == "true"
    return SessionLogonOptions(
        seconds, pretty=is_pretty, correlation_id=header.correlation_id or ""
    )


def read_subscribe_options(
    header: Header, options: Mapping[str, str], session: Session, *, with_records: bool
) -> SubscribeOptions:
    """Read the options of a subscribe command, or of one that also queries.

    Args:
        header: the command's header.
        options: its options, split.
        session: the connection that sent it.
        with_records: whether its topics may have records.

    Raises:
        CommandRefusedError: an option is unknown, malformed or cannot be honoured.
    """
    honoured = HONOURED_WITH_RECORDS if with_records else HONOURED
    if with_records and header.command in QUERY_COMMANDS:
        honoured |= HONOURED_BY_QUERIES
    refused = REFUSED if with_records else {**REFUSED, **REFUSED_WITHOUT_RECORDS}
    _check(header, options, honoured, WITHOUT_EFFECT, refused)
    return SubscribeOptions(
        is_replacement="replace" in options,
        presentation=read_presentation(header, options, session),
        conflation=read_conflation(options, keys_needed=not with_records),
        tracks_focus="oof" in options,
        no_empties="no_empties" in options,
    )


def check_query_options(header: Header, options: Mapping[str, str]) -> None:
    """Check the options of a sow command.

    Raises:
        CommandRefusedError: an option is unknown or cannot be honoured.
    """
    _check(header, options, HONOURED_BY_QUERIES, WITHOUT_EFFECT_ON_QUERIES, REFUSED)


def check_delete_options(header: Header, options: Mapping[str, str]) -> None:
    """Check the options of a sow_delete that does not acknowledge messages of a queue.

    Raises:
        CommandRefusedError: an option is unknown or cannot be honoured.
    """
    _check(header, options, {"non_regex_topic"}, {"none"}, REFUSED_BY_DELETES)


def check_replay_options(header: Header, options: Mapping[str, str]) -> None:
    """Check the options of a subscribe command with a bookmark, or of one that also queries.

    Raises:
        CommandRefusedError: an option is unknown or cannot be honoured.
    """
    honoured = HONOURED_BY_REPLAYS
    if header.command in QUERY_COMMANDS:
        honoured |= HONOURED_BY_QUERIES
    _check(header, options, honoured, WITHOUT_EFFECT_ON_REPLAYS, REFUSED_BY_REPLAYS)


def check_count_options(header: Header, options: Mapping[str, str]) -> None:
    """Check the options of a subscribe command that requests a count.

    Raises:
        CommandRefusedError: an option is unknown or cannot be honoured.
    """
    _check(header, options, HONOURED_BY_COUNTS, WITHOUT_EFFECT_ON_COUNTS, REFUSED_BY_REPLAYS)


def check_options(text: str, command: Literal["subscribe", "sow"]) -> None:
    """Check the options of a command before its topics and messages are known.

    Raises:
        CommandRefusedError: an option is unknown, or cannot be honoured for any topic.
    """
    options = split_options(text)
    header = Header(command=command)
    if command == "sow":
        others = {name: value for name, value in options.items() if name not in AGGREGATION_OPTIONS}
        check_query_options(header, others)
    else:
        _check(header, options, HONOURED_WITH_RECORDS, WITHOUT_EFFECT, REFUSED)
        read_conflation(options, keys_needed=False)


def _check(
    header: Header,
    options: Mapping[str, str],
    honoured: Collection[str],
    without_effect: Collection[str],
    refused: Mapping[str, str],
) -> None:
    for name in options:
        if name in refused:
            raise option_refusal(name, refused[name])
        if name not in honoured and name not in without_effect:
            raise option_refusal(name, f"it is no option of {header.command}")


def read_presentation(header: Header, options: Mapping[str, str], session: Session) -> Presentation:
    """Read the form in which messages are sent.

    Args:
        header: the command's header.
        options: its options, split.
        session: the connection that sent it.

    Raises:
        CommandRefusedError: the select list cannot be used.
    """
    message_type = session.engine.settings.message_types[session.message_type]
    presentation = Presentation(
        select=_select_list(options, message_type),
        has_timestamp="timestamp" in options,
        has_sow_key="no_sowkey" not in options,
        has_bookmark="bookmark" in options,
        has_sub_ids=header.send_matching_ids is not False,
        pretty=pretty_printer(message_type) if session.options.pretty else None,
    )
    return (
        AS_PUBLISHED if presentation == AS_PUBLISHED else presentation
    )  # very many share one object


def read_max_backlog(options: Mapping[str, str]) -> int | None:
    """Read the maximum number of queue messages that a subscription requests at one time.

    Returns:
        The number, 0 for none at the moment; None without the option.

    Raises:
        CommandRefusedError: it is not a number.
    """
    text = options.get("max_backlog")
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise option_refusal("max_backlog", "expected a number of messages, 0 or more")
    return int(text)


def read_options(header: Header) -> Mapping[str, str]:
    """Return the options of a subscription or query, including those with their own header keys.

    Returns:
        The value of each option, by its name in lower case; a flag's value is empty.

    Raises:
        CommandRefusedError: the options are malformed.
    """
    options = dict(split_options(header.options or ""))
    if header.send_oof:
        options["oof"] = ""
    if header.send_keys:
        options["send_keys"] = ""
    if header.send_empty is False:
        options["no_empties"] = ""
    if options.get("skip_n") == "0" and "top_n" not in options and header.top_n is None:
        del options["skip_n"]  # skipping none is no pagination; clients send it with every query
    return options


def split_options(text: str) -> Mapping[str, str]:
    """Split an option list into names, in lower case, and values; a flag's value is empty.

    Raises:
        CommandRefusedError: the text is not a list of options.
    """
    options: dict[str, str] = {}
    text = text.lstrip(", ")
    position = number = 0
    while position < len(text):
        number += 1
        match = _OPTION.match(text, position) if number <= _MAX_OPTIONS else None
        name = "" if match is None else match["name"].strip().lower()
        if match is None or not name:
            raise CommandRefusedError(
                "invalid option", f"expected an option at position {position} of {text[:200]!r}"
            )
        options[name] = (match["value"] or "").strip()
        position = match.end()
    return options


def check_entries(name: str, text: str, limit: int) -> None:
    """Refuse an option with more list entries than one time slice can process.

    Args:
        name: the option.
        text: its value.
        limit: the maximum number of entries.

    Raises:
        CommandRefusedError: it has more.
    """
    entries = text.count(",") + 1
    if entries > limit:
        raise CommandRefusedError(
            "limit exceeded", f"option {name} has {entries} entries: expected no more than {limit}"
        )


def _select_list(options: Mapping[str, str], message_type: MessageType) -> SelectList | None:
    text = options.get("select")
    if text is None:
        return None
    if not message_type.capabilities.select:
        raise option_refusal("select", f"messages of type {message_type.name} have no select lists")
    check_entries("select", text, MAX_SELECTED_FIELDS)
    try:
        return SelectList(text, parse_selection(unbracketed("select", text)), message_type)
    except SelectionError as error:
        raise option_refusal("select", str(error)) from None


def read_conflation(options: Mapping[str, str], *, keys_needed: bool) -> ConflationTerms | None:
    """Read the conflation of messages; None for none.

    Args:
        options: the command's options, split.
        keys_needed: whether only the options can name a key, as the topics have none.

    Raises:
        CommandRefusedError: an option is malformed.
    """
    interval = options.get("conflation", "none").lower()
    if interval == "none":
        if "conflation_key" in options:
            raise option_refusal("conflation_key", "it goes with the option conflation only")
        return None
    keys = unbracketed("conflation_key", options.get("conflation_key", "[]"))
    check_entries("conflation_key", keys, MAX_CONFLATION_KEYS)
    if not keys and keys_needed:
        raise option_refusal(
            "conflation", "a topic that keeps no records needs conflation_key=[...] with it"
        )
    paths = tuple(_path(key.strip()) for key in keys.split(",")) if keys else ()
    if interval == "auto":
        return ConflationTerms(AUTOMATIC_INTERVAL, is_automatic=True, key_fields=paths)
    try:
        seconds = parse_interval(interval) / _NANOSECONDS
    except UnitError as error:
        raise option_refusal("conflation", str(error)) from None
    return ConflationTerms(seconds, is_automatic=False, key_fields=paths)


def _path(text: str) -> Path:
    try:
        return parse_path(text)
    except PathError as error:
        raise option_refusal("conflation_key", str(error)) from None


def unbracketed(name: str, text: str) -> str:
    """Return the value of an option without its brackets.

    Raises:
        CommandRefusedError: it has no brackets.
    """
    if not (text.startswith("[") and text.endswith("]")):
        raise option_refusal(name, f"expected a list in brackets and not {text!r}")
    return text[1:-1].strip()


def option_refusal(name: str, detail: str) -> CommandRefusedError:
    """Return the refusal of a command for one of its options."""
    return CommandRefusedError("invalid option", f"option {name} cannot be used here: {detail}")
