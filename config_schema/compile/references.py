"""References of the SOW section to topics and fields: `topic`, `[topic]`, `[type].[topic]./field`.

Source: AMPS User Guide, Defining Views and Aggregations.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from config_schema.spec import JoinField, TopicRef

_BRACKETED: Final = re.compile(r"\[([^\[\]]+)\]")
_QUALIFIERS: Final = r"(?P<qualifiers>(?:\[[^\[\]]+\]\s*\.\s*(?=[/\[]))*)"
_PATH: Final = r"(?P<path>\[/[^\[\]]*\]|/[^\s()\[\],+*%=<>!]+)"
_IDENTIFIER: Final = re.compile(_QUALIFIERS + _PATH)
_LITERAL: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_PLAIN_FIELD: Final = re.compile(
    r"(?P<qualifiers>(?:\[[^\[\]]+\]\s*\.\s*)+)\[(?P<field>[^\[\]/]+)\](?!\s*\.\s*[/\[])"
)
"""A field as AMPS 5.2 writes it, `[topic].[field]`."""
_DESTINATION: Final = re.compile(r"\s+AS\s+(?=[/\[])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FieldUse:
    """A field that an expression reads: the names in brackets before it, and its path."""

    qualifiers: tuple[str, ...]
    path: str


def parse_topic(text: str, message_type: str) -> TopicRef | None:
    """Read a reference to a topic; without a type of its own it has `message_type`.

    Returns:
        The reference, or None if brackets do not match.
    """
    text = text.strip()
    if not text.startswith("["):
        return TopicRef(text, message_type)
    names = _BRACKETED.findall(text)
    understood = ".".join(f"[{name}]" for name in names)
    if len(names) > 2 or re.sub(r"\]\s*\.\s*\[", "].[", text) != understood:
        return None
    return TopicRef(names[-1], names[0] if len(names) == 2 else message_type)


def parse_join(text: str, message_type: str) -> tuple[JoinField, JoinField] | None:
    """Read a join, two fields with an equals sign between them.

    Returns:
        Its two sides, or None if the text is not a join.
    """
    sides = re.split(r"=(?![^\[]*\])", text)
    fields = [_join_field(side, message_type) for side in sides]
    if len(fields) != 2 or fields[0] is None or fields[1] is None:
        return None
    return fields[0], fields[1]


def _join_field(text: str, message_type: str) -> JoinField | None:
    text = _with_slashes(text.strip())
    match = _IDENTIFIER.fullmatch(text)
    names = _BRACKETED.findall(match["qualifiers"]) if match else []
    if match and 1 <= len(names) <= 2:
        topic = TopicRef(names[-1], names[0] if len(names) == 2 else message_type)
        return JoinField(topic, match["path"].strip("[]"))
    name, slash, field = text.partition("/")
    name = name.strip().removesuffix(".").strip()
    if not name or "[" in text or _IDENTIFIER.fullmatch(slash + field) is None:
        return None
    return JoinField(TopicRef(name, message_type), slash + field)


def _with_slashes(text: str) -> str:
    """Return the text with `[topic].[/field]` for `[topic].[field]`."""
    return _PLAIN_FIELD.sub(r"\g<qualifiers>[/\g<field>]", text)


def fields_used(expression: str) -> Iterator[FieldUse]:
    """Return the fields that an expression reads, without the destination after AS."""
    source = _DESTINATION.split(_LITERAL.sub("''", expression))[0]
    for match in _IDENTIFIER.finditer(_with_slashes(source)):
        yield FieldUse(tuple(_BRACKETED.findall(match["qualifiers"])), match["path"])


def field_problem(
    used: FieldUse, underlying: Sequence[TopicRef], message_type: str
) -> tuple[str, str | None] | None:
    """Return why a field cannot be read in a view of `message_type` over `underlying`.

    Returns:
        The error, and the correct form; None if there is no error.
    """
    path = used.path.strip("[]")
    ways = [f"{qualified(topic, message_type)}./{path.lstrip('/')}" for topic in underlying]
    advice = f"write {' or '.join(ways)}"
    if not used.qualifiers:
        if len(underlying) > 1:
            return f"the field {path} could come from any of the joined topics", advice
        if underlying and underlying[0].message_type != message_type:
            types = f"of type '{underlying[0].message_type}' and the view of type '{message_type}'"
            return f"the field {path} needs its topic and type: the topic is {types}", advice
        return None
    type_name = used.qualifiers[0] if len(used.qualifiers) == 2 else message_type
    topic = TopicRef(used.qualifiers[-1], type_name)
    if len(used.qualifiers) > 2 or topic not in underlying:
        return f"{topic} is not an underlying topic of this view", advice
    return None


def qualified(topic: TopicRef, message_type: str) -> str:
    """Write a reference as briefly as a view of `message_type` allows."""
    return f"[{topic.name}]" if topic.message_type == message_type else str(topic)
