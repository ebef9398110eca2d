"""Views: their underlying topics, and a check that each field names one of these.

Source: AMPS User Guide, Configuring Views in a SOW and Defining Views and Aggregations.
"""

from collections.abc import Sequence
from typing import Final

from config_schema.catalogue import ExpressionKind
from config_schema.compile.reader import ElementReader
from config_schema.compile.references import (
    field_problem,
    fields_used,
    parse_join,
    parse_topic,
)
from config_schema.compile.scope import Scope
from config_schema.compile.topics import compile_hash_indexes
from config_schema.compile.underlying import find_underlying
from config_schema.regex import has_regex_characters
from config_schema.spec import JoinSpec, TopicRef, ViewSpec
from config_schema.units import quoted

CONFLATIONS: Final = ("none", "inline")


def compile_view(reader: ElementReader, scope: Scope) -> ViewSpec:
    """Compile one View of the SOW section."""
    name = reader.text("Name") or ""
    message_type = scope.message_type(reader)
    if not scope.capabilities_of(message_type).view:
        reader.error(
            f"a view cannot be of type {quoted(message_type)}, in which AMPS builds no messages",
            "use another type such as json; fields are then written [type].[topic]./field",
            tag="MessageType",
        )
    underlying, joins = _underlying(reader, message_type, scope)
    projection = _fields(reader, "Projection", ExpressionKind.PROJECTION, underlying, message_type)
    grouping = _fields(reader, "Grouping", ExpressionKind.GROUPING, underlying, message_type)
    return ViewSpec(
        name=name,
        message_type=message_type,
        underlying=underlying,
        joins=joins,
        projection=projection,
        grouping=grouping,
        filter=_filter(reader),
        key_domain=reader.text("KeyDomain") or name,
        inline_conflation=reader.choice("Conflation", CONFLATIONS, "none") == "inline",
        join_null_equivalency=_join_null_equivalency(reader, joins),
        hash_indexes=compile_hash_indexes(reader),
        name_has_regex_characters=has_regex_characters(name),
        location=reader.location,
    )


def _underlying(
    reader: ElementReader, message_type: str, scope: Scope
) -> tuple[tuple[TopicRef, ...], tuple[JoinSpec, ...]]:
    element = reader.child("UnderlyingTopic")
    if element is None:
        reader.error("is missing but required: the topic, or Join elements", tag="UnderlyingTopic")
        return (), ()
    if element.has("Join"):
        if element.value:
            element.error("holds a topic name beside Join elements: expected one or the other")
        return _joined(element, message_type, scope)
    ref = parse_topic(element.value, message_type)
    if ref is None:
        element.error(
            f"{quoted(element.value)} is not a topic: expected its name or [type].[topic]"
        )
    elif not ref.name:
        element.error("is empty: expected the name of a topic, or Join elements")
    else:
        _check_source(element, ref, scope)
        return (ref,), ()
    return (), ()


def _joined(
    element: ElementReader, message_type: str, scope: Scope
) -> tuple[tuple[TopicRef, ...], tuple[JoinSpec, ...]]:
    joins: list[JoinSpec] = []
    topics: dict[TopicRef, None] = {}
    for join in element.children("Join"):
        sides = parse_join(join.value, message_type)
        if sides is None:
            join.error(
                f"{quoted(join.value)} is not a join: expected [topic].[/field]=[topic].[/field], "
                "each side with its [type] first where types differ"
            )
            continue
        left, right = sides
        if left.topic == right.topic:
            join.error(f"{quoted(join.value)} joins {left.topic} with itself: expected two topics")
        for side in sides:
            if side.topic not in topics:
                _check_source(join, side.topic, scope)
        topics.update(dict.fromkeys((left.topic, right.topic)))
        joins.append(JoinSpec(left, right, join.location))
    _check_connected(element, tuple(topics), joins)
    return tuple(topics), tuple(joins)


def _check_connected(
    reader: ElementReader, topics: Sequence[TopicRef], joins: Sequence[JoinSpec]
) -> None:
    """Report topics that no join, and no chain of joins, relates to the first one."""
    reached = set(topics[:1])
    pairs = [{join.left.topic, join.right.topic} for join in joins]
    while more := [pair for pair in pairs if pair & reached and not pair <= reached]:
        reached.update(*more)
    for topic in topics:
        if topic not in reached:
            reader.error(
                f"no Join relates {topic} to {topics[0]}, the first topic",
                "a view has the records of its first topic, joined with those of the others",
            )
            return


def _check_source(reader: ElementReader, ref: TopicRef, scope: Scope) -> None:
    source = find_underlying(reader, ref, scope)
    if source is not None and source.pattern is not None:
        reader.error(
            f"{quoted(ref.name)} has a Pattern, and such a topic cannot be made into a view",
            "define the topics that the view needs one by one",
        )
    elif not scope.capabilities_of(ref.message_type).fields:
        reader.error(
            f"topic {quoted(ref.name)} is of type {quoted(ref.message_type)}, "
            "which has no fields to make a view from"
        )


def _fields(
    reader: ElementReader,
    tag: str,
    kind: ExpressionKind,
    underlying: Sequence[TopicRef],
    message_type: str,
) -> tuple[str, ...]:
    section = reader.child(tag)
    if section is None or not section.has("Field"):
        reader.error("is missing but required: at least one Field", tag=tag)
        return ()
    for field in section.children("Field"):
        if field.value and underlying:
            _check_sources(field, underlying, message_type)
    return section.expressions("Field", kind)


def _check_sources(field: ElementReader, underlying: Sequence[TopicRef], message_type: str) -> None:
    """Report the first field of an expression that none of the underlying topics can give."""
    for used in fields_used(field.value):
        problem = field_problem(used, underlying, message_type)
        if problem is not None:
            field.error(*problem)
            return


def _filter(reader: ElementReader) -> str | None:
    underlying = reader.child("UnderlyingTopic")
    if reader.has("Filter") and underlying is not None and underlying.has("Join"):
        reader.error(
            "is not possible on a view with Join elements",
            "let subscribers and queries filter the view, or filter in a view below this one",
            tag="Filter",
        )
    return reader.expression("Filter", ExpressionKind.VIEW_FILTER)


def _join_null_equivalency(reader: ElementReader, joins: Sequence[JoinSpec]) -> bool:
    if not joins:
        reader.warn_no_effect(("JoinNullEquivalency",), "the view has no Join")
    return reader.flag("JoinNullEquivalency", default=False)
