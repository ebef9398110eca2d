"""Measures a part of the transaction log, as the server counts it.

With the option `count` of `subscribe` (docs/compatibility.md) the server sends no messages. It
returns their number and bytes, and the places of the log where they could be divided. A place is a
bookmark with the number of the log as publisher, and the number of an entry as sequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from amperage.client import Client, ClientError, CommandError
from pipeline.amps.options import AmpsOptions
from pipeline.errors import option_error

_VALUE: Final = re.compile(r"(?:^|,)(\w+)(?:=(?:\[([^\]]*)\]|([^,\[]*)))?")
_PASSED_ON: Final = frozenset(
    {"bookmark_not_found", "deletions", "fully_durable", "non_regex_topic"}
)
_NOT_LOGGED: Final = "only messages of a transaction log can be counted"
_MICROSECONDS: Final = 1e6
_MAX_PARTS: Final = 1000
"""The maximum number of parts that the server divides a count into."""


class LogPart(NamedTuple):
    """A part of the counted messages.

    Attributes:
        end: the place of its last entry.
        rows: the number of its messages.
    """

    end: str
    rows: int


class LogMeasure(NamedTuple):
    """The amount of messages in a part of the log.

    Attributes:
        rows: the number of messages.
        size: their bytes.
        begin: the place after which they begin.
        end: the place up to which they go.
        parts: parts of them of about equal size, in order.
        oldest_s: the time when the first was recorded, in seconds since 1970; 0 if there is none.
        lost_text: the removed part of the log, as reported by the server; empty for nothing.
        is_whole: whether all messages were counted, and not only as many as requested.
    """

    rows: int
    size: int
    begin: str
    end: str
    parts: Sequence[LogPart]
    oldest_s: float
    lost_text: str
    is_whole: bool

    def after_reading(self) -> LogMeasure:
        """Return the amount that is left when all of this has been read."""
        return self._replace(rows=0, size=0, oldest_s=0.0, begin=self.end)

    def ranges(self) -> dict[str, int]:
        """Return the parts as ranges of bookmarks, with the number of messages in each."""
        begins = [self.begin, *(part.end for part in self.parts)]
        pairs = zip(begins, self.parts, strict=False)
        return {f"({begin}:{part.end}]": part.rows for begin, part in pairs}


def measure(
    client: Client,
    options: AmpsOptions,
    span: str,
    *,
    command_options: str = "",
    rows: int | None = None,
    size: int | None = None,
    parts: int = 1,
    is_filtered: bool = True,
) -> LogMeasure:
    """Count the messages of a part of the log.

    Args:
        client: a session.
        options: the topic and the filter.
        span: the part, as `[begin:end)` with bookmarks.
        command_options: the options field of the replay that the count is for.
        rows: end after this many messages.
        size: end after this many bytes.
        parts: the maximum number of parts to divide the messages into.
        is_filtered: whether to apply the filter; without it, all messages of the topic count.

    Raises:
        PipelineError: the topic is not in the log.
        ClientError: the server refuses, or the connection is lost.
    """
    passed_options = [
        option.strip()
        for option in command_options.split(",")
        if option.strip().partition("=")[0] in _PASSED_ON
    ]
    options_to_send = ["count", f"count_parts={min(parts, _MAX_PARTS)}", *passed_options]
    if size is not None:
        options_to_send.append(f"count_bytes={size}")
    try:
        with client.subscribe(
            options.read_topic,
            filter=options.filter if is_filtered else None,
            options=",".join(options_to_send),
            bookmark=span,
            top_n=rows,
            acks=("completed",),
        ) as stream:
            ack = stream.next(options.timeout)
    except CommandError as error:
        if error.reason != "invalid option" or _NOT_LOGGED not in (error.detail or ""):
            raise
        raise option_error(
            "topic", options.read_topic, "it is not in the server's TransactionLog"
        ) from None
    if ack is None:
        raise ClientError("the server has not returned the number of messages")
    values = {
        name: listed or plain for name, listed, plain in _VALUE.findall(ack.header.options or "")
    }
    if "places" not in values:
        raise ClientError(
            "the server does not return the number of messages: it does not support the option"
            " count of subscribe; expected Amperage of the same version as the pipeline"
        )
    part_borders = (part.rpartition(":") for part in values["parts"].split(","))
    return LogMeasure(
        int(ack.header.matches or 0),
        int(values["bytes"]),
        values["begin"],
        values["places"],
        [LogPart(place, int(count)) for place, _, count in part_borders],
        int(values["oldest"]) / _MICROSECONDS,
        _lost_text(values.get("lost", "")),
        "more" not in values,
    )


def _lost_text(lost: str) -> str:
    """Return a readable text for the last removed message that the server reports."""
    if not lost:
        return ""
    place, _, timestamp = lost.rpartition(":")
    if timestamp == "0":
        return f"the entries up to {place} are removed; whether the topic had others is unknown"
    moment = datetime.fromtimestamp(int(timestamp) / _MICROSECONDS, UTC)
    return f"its messages until {moment:%Y-%m-%dT%H:%M:%SZ}, up to {place}, are removed"
