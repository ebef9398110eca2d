"""The SOW section: topics, views, conflated topics and queues in the order of the file.

The order matters: a definition may only use those before it, and it wins over a later Pattern.
Source: AMPS User Guide, Configuring the State of the World.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from config_schema.compile.conflated import compile_conflated_topic
from config_schema.compile.queues import compile_queue
from config_schema.compile.reader import CompileReport, ElementReader
from config_schema.compile.scope import Scope, SowDefinition
from config_schema.compile.topics import check_shared_files, compile_topic
from config_schema.compile.views import compile_view
from config_schema.selection import TopicPattern
from config_schema.spec import QueueSpec, SowSpec, TopicRef
from config_schema.units import quoted

_COMPILERS: Final[Mapping[str, Callable[[ElementReader, Scope], SowSpec]]] = {
    "Topic": compile_topic,
    "View": compile_view,
    "ConflatedTopic": compile_conflated_topic,
    "Queue": compile_queue,
    "LocalQueue": compile_queue,
    "GroupLocalQueue": compile_queue,
}
_NEVER_RECORDED: Final = ("View", "ConflatedTopic")


def compile_sow(root: ElementReader, scope: Scope) -> tuple[SowSpec, ...]:
    """Compile the SOW section and make its topics known."""
    section = root.child("SOW")
    if section is None:
        return ()
    readers = list(section.children(*_COMPILERS))
    scope.not_yet_compiled.extend(_stored(reader) for reader in readers)
    specs: list[SowSpec] = []
    for reader in readers:
        _check_name(reader, scope.not_yet_compiled[0], scope, root.location.file)
        specs.append(_COMPILERS[reader.node.tag](reader, scope))
        scope.register_stored(scope.not_yet_compiled.popleft())
    check_shared_files(specs, section.report)
    _check_journaled(scope, section.report)
    _check_queues(specs, scope, section.report)
    return tuple(specs)


def _check_journaled(scope: Scope, report: CompileReport) -> None:
    """Warn about topics of the transaction log that record nothing."""
    for ref, logged in scope.journaled.items():
        stored = scope.find_stored(ref)
        if stored is not None and stored.kind in _NEVER_RECORDED:
            report.warning(
                logged,
                "Topic/Name",
                f"{stored.ref} is the {stored.kind} at {stored.node.location}, "
                "whose messages are not recorded",
                "record its underlying topic",
            )
        selection = _log_selection(ref, scope)
        for other in scope.patterns:
            if other.ref.message_type != ref.message_type:
                continue
            if selection.is_expression and _records_none_of(selection, other, scope):
                report.warning(
                    logged,
                    "Topic/Name",
                    f"all that {quoted(logged.name)} matches is kept by the Pattern of "
                    f"{other.ref}, which is recorded under its own name only",
                    f"record {quoted(other.ref.name)}",
                )
            elif stored is None and not selection.is_expression and other.covers(logged.name):
                report.warning(
                    logged,
                    "Topic/Name",
                    f"{quoted(logged.name)} is kept by the Pattern of {other.ref}, "
                    "which is recorded under its own name only",
                    f"record {quoted(other.ref.name)}",
                )


def _records_none_of(selection: TopicPattern, other: SowDefinition, scope: Scope) -> bool:
    """Return true if the log is to record a Pattern's topics, by an expression, but does not."""
    single_refs = (topic.ref for topic in scope.stored.values() if topic.pattern is None)
    return (
        other.pattern is not None
        and not scope.is_journaled(other.ref.name, selection.message_type)
        and TopicPattern(other.pattern, selection.message_type, is_expression=True).includes(
            selection
        )
        and not any(selection.includes(_log_selection(ref, scope)) for ref in single_refs)
    )


def _log_selection(ref: TopicRef, scope: Scope) -> TopicPattern:
    """Return the selection of the transaction log that the name of a topic means."""
    return TopicPattern.from_name(ref.name, ref.message_type, regex_topics=scope.regex_topics)


def _check_queues(specs: Sequence[SowSpec], scope: Scope, report: CompileReport) -> None:
    """Warn about queues over topics that record nothing."""
    for spec in specs:
        if not isinstance(spec, QueueSpec) or spec.underlying_is_regex:
            continue
        underlying = scope.find_stored(TopicRef(spec.underlying_topic, spec.message_type))
        if underlying is not None and underlying.kind in _NEVER_RECORDED:
            report.warning(
                spec,
                f"{spec.kind}/UnderlyingTopic",
                f"{underlying.ref} is the {underlying.kind} at {underlying.node.location}, "
                "whose messages are not recorded: none will enter the queue",
                "feed the queue from its underlying topic",
            )


def _stored(reader: ElementReader) -> SowDefinition:
    ref = TopicRef(reader.text("Name") or "", reader.text("MessageType") or "")
    return SowDefinition(reader.node.tag, ref, reader.text("Pattern"), reader.node)


def _check_name(reader: ElementReader, stored: SowDefinition, scope: Scope, main_file: str) -> None:
    reader.required("Name")
    if not stored.ref.name:
        return
    earlier = scope.find_stored(stored.ref)
    if earlier is not None:
        reader.error(
            f"{stored.ref} is defined twice: it is the {earlier.kind} at {earlier.node.location}",
            "the file is included twice"
            if earlier.node == reader.node and reader.location.file != main_file
            else "topics of one name need different message types",
            tag="Name",
        )
        return
    for earlier in scope.patterns:
        if (
            stored.pattern is None
            and earlier.ref.message_type == stored.ref.message_type
            and earlier.covers(stored.ref.name)
        ):
            reader.error(
                f"{quoted(stored.ref.name)} is already covered by the Pattern of "
                f"{quoted(earlier.ref.name)} at {earlier.node.location}",
                f"move this {stored.kind} before that Topic",
                tag="Name",
            )
            return
