"""Conflated topics.

Source: AMPS User Guide, Configuring Conflated Topics in a SOW.
"""

from typing import Final

from config_schema.catalogue import ExpressionKind
from config_schema.compile.reader import INTERVAL, ElementReader
from config_schema.compile.references import parse_topic
from config_schema.compile.scope import Scope, SowDefinition
from config_schema.compile.topics import compile_hash_indexes
from config_schema.compile.underlying import find_underlying
from config_schema.regex import has_regex_characters
from config_schema.spec import ConflatedTopicSpec, TopicRef
from config_schema.units import quoted

_NAME_PLACE: Final = "%n"


def compile_conflated_topic(reader: ElementReader, scope: Scope) -> ConflatedTopicSpec:
    """Compile one ConflatedTopic of the SOW section."""
    name = reader.text("Name") or ""
    message_type = scope.message_type(reader)
    underlying, source = _underlying(reader, message_type, scope)
    enrichment = reader.child("Enrichment")
    return ConflatedTopicSpec(
        name=name,
        message_type=message_type,
        underlying=underlying,
        interval=reader.quantity("Interval", INTERVAL, "5s", minimum="100ms"),
        filter=reader.expression("Filter", ExpressionKind.STABLE_FILTER),
        hash_indexes=compile_hash_indexes(reader),
        enrichment=enrichment.expressions("Field", ExpressionKind.CONFLATED_ENRICHMENT)
        if enrichment
        else (),
        topic_format=_topic_format(reader, source),
        name_has_regex_characters=has_regex_characters(name),
        location=reader.location,
    )


def _underlying(
    reader: ElementReader, message_type: str, scope: Scope
) -> tuple[TopicRef, SowDefinition | None]:
    element = reader.child("UnderlyingTopic")
    if element is None:
        reader.required("UnderlyingTopic")
        return TopicRef("", message_type), None
    ref = parse_topic(element.value, message_type)
    if ref is None or ref.message_type != message_type:
        element.error(
            f"{quoted(element.value)} is not a topic of type {quoted(message_type)}: "
            "a conflated topic has the type of its underlying topic"
        )
        return TopicRef("", message_type), None
    source = find_underlying(element, ref, scope, same_type=True)
    if source is not None and source.kind.endswith("Queue"):
        element.error(
            f"{quoted(ref.name)} is a {source.kind}: expected a Topic, View or ConflatedTopic"
        )
    return ref, source


def _topic_format(reader: ElementReader, source: SowDefinition | None) -> str | None:
    text = reader.text("TopicFormat")
    if source is not None and source.pattern is not None and text is None:
        reader.error(
            f"is missing but required, because {quoted(source.ref.name)} has a Pattern",
            "write how the topics are to be named, such as %n-C",
            tag="TopicFormat",
        )
    if text is None:
        return None
    if source is not None and source.pattern is None:
        reader.warn_no_effect(("TopicFormat",), f"{quoted(source.ref.name)} has no Pattern")
    if _NAME_PLACE not in text:
        reader.error(
            f"{quoted(text)} does not contain %n, the placeholder of the topic name",
            tag="TopicFormat",
        )
    elif text == _NAME_PLACE:
        reader.error(
            f"{quoted(text)} names the copy of a topic like the topic itself",
            "add characters, such as %n-C",
            tag="TopicFormat",
        )
    elif has_regex_characters(text.replace(_NAME_PLACE, "")):
        reader.error(
            f"{quoted(text)} contains characters of regular expressions, such as . or ^",
            "use others such as - or /",
            tag="TopicFormat",
        )
    return text
