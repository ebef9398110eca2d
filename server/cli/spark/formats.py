"""Renders messages for `-format`, such as `{command}:{data}`, and for `-json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from amperage.client import Message
from server.cli.spark.options import UsageError
from server.util.json_lines import json_line

MessageRenderer = Callable[[Message], bytes]

_TAG: Final = re.compile(r"\{(\w+)\}")


def _field(name: str) -> MessageRenderer:
    def render(message: Message) -> bytes:
        value = getattr(message.header, name)
        return b"" if value is None else str(value).encode("utf-8", "surrogateescape")

    return render


_TAGS: Final[Mapping[str, MessageRenderer]] = {
    "bookmark": _field("bookmark"),
    "command": _field("command"),
    "correlation_id": _field("correlation_id"),
    "data": lambda message: message.body,
    "expiration": _field("expiration"),
    "lease_period": _field("lease_period"),
    "length": lambda message: b"%d" % len(message.body),
    "sowkey": _field("sow_key"),
    "timestamp": _field("timestamp"),
    "topic": _field("topic"),
    "user_id": _field("user_id"),
}


def compile_format(text: str | None) -> MessageRenderer:
    """Return the function that renders a message.

    Args:
        text: literal text with tags; None stands for the message's data alone.

    Raises:
        UsageError: a tag is unknown.
    """
    if text is None:
        return _TAGS["data"]
    renderers: list[MessageRenderer] = []
    for index, text_part in enumerate(_TAG.split(text)):
        if index % 2:
            renderers.append(_tag(text_part))
        elif text_part:
            renderers.append(_literal(text_part.encode("utf-8", "surrogateescape")))
    return lambda message: b"".join([part(message) for part in renderers])


def as_json(message: Message) -> bytes:
    """Return a message as a JSON object: its data, and a field for each tag of formats."""
    header = message.header
    return json_line(
        {
            "command": header.command,
            "topic": header.topic,
            "bookmark": header.bookmark,
            "sowkey": header.sow_key,
            "timestamp": header.timestamp,
            "correlation_id": header.correlation_id,
            "expiration": header.expiration,
            "lease_period": header.lease_period,
            "user_id": header.user_id,
            "length": len(message.body),
            "data": message.body,
        }
    ).rstrip(b"\n")


def has_tag(text: str | None, tag: str) -> bool:
    """Return True if a format prints a header field."""
    return text is not None and f"{{{tag}}}" in text


def _tag(name: str) -> MessageRenderer:
    render = _TAGS.get(name)
    if render is None:
        tags = " ".join(f"{{{tag}}}" for tag in _TAGS)
        raise UsageError(f"-format has an unknown tag {{{name}}}; known are {tags}")
    return render


def _literal(text: bytes) -> MessageRenderer:
    return lambda _message: text
