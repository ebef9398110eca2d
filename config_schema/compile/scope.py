"""The names that the sections of one configuration share while they are compiled.

Sections are compiled in the order of their dependencies, each adding the names that it defines:
modules, message types, transports, journaled topics, stored topics.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from config_schema.catalogue import LibraryRule
from config_schema.compile.reader import ElementReader, did_you_mean
from config_schema.document import ConfigNode
from config_schema.regex import has_regex_characters, matches, regex_error
from config_schema.spec import JournaledTopicSpec, Options, ProtocolSpec, TopicRef, TransportSpec
from config_schema.units import quoted


@dataclass(frozen=True, slots=True)
class TypeCapabilities:
    """The capabilities of a message type (AMPS User Guide, Default Message Types).

    `fields`: values can be read from a message. `view`: messages can be composed for a view.
    `enrichment`: fields of a message can be set.
    """

    fields: bool = True
    view: bool = True
    enrichment: bool = True


@dataclass(frozen=True, slots=True)
class SowDefinition:
    """A definition of the SOW section that other sections may refer to."""

    kind: str
    ref: TopicRef
    pattern: str | None
    node: ConfigNode

    def covers(self, topic: str) -> bool:
        """Return true if messages published to `topic` are stored by this definition."""
        if self.pattern is None:
            return self.ref.name == topic
        return regex_error(self.pattern) is None and matches(self.pattern, topic)


@dataclass(slots=True)
class Scope:
    """The names known so far.

    `modules` maps a name to None if its library is not available; `options_of_modules` has the
    options that each was loaded with. `stored` has the compiled definitions of the SOW section, in
    the order of the file, `not_yet_compiled` the others; the first of these is the one being
    compiled. A configuration may have thousands of topics, so lookups per topic are by name.
    Without `regex_topics` (RegexTopicSupport) every topic name is literal.
    """

    regex_topics: bool = True

    modules: dict[str, LibraryRule | None] = field(default_factory=dict)
    options_of_modules: dict[str, Options] = field(default_factory=dict)
    message_types: dict[str, TypeCapabilities] = field(default_factory=dict)
    protocols: dict[str, ProtocolSpec] = field(default_factory=dict)
    transports: dict[str, TransportSpec] = field(default_factory=dict)
    journaled: dict[TopicRef, JournaledTopicSpec] = field(default_factory=dict)
    journaled_patterns: list[TopicRef] = field(default_factory=list)
    stored: dict[TopicRef, SowDefinition] = field(default_factory=dict)
    patterns: list[SowDefinition] = field(default_factory=list)
    not_yet_compiled: deque[SowDefinition] = field(default_factory=deque)

    def message_type(self, reader: ElementReader) -> str:
        """Return the message type that MessageType names, which must exist."""
        name = reader.required("MessageType")
        self.check_message_type(reader, name, "MessageType")
        return name

    def check_message_type(self, reader: ElementReader, name: str, tag: str | None = None) -> None:
        """Report `name` unless it is a message type of this instance."""
        if name and name not in self.message_types:
            hint = did_you_mean(name, list(self.message_types))
            reader.error(
                f"message type {quoted(name)} is not defined",
                hint or "define it in MessageTypes, or use one of " + ", ".join(self.message_types),
                tag=tag,
            )

    def capabilities_of(self, message_type: str) -> TypeCapabilities:
        """Return the capabilities of a message type; all of them for one that is not defined."""
        return self.message_types.get(message_type, TypeCapabilities())

    def find_stored(self, ref: TopicRef) -> SowDefinition | None:
        """Return the definition with exactly this name and type."""
        return self.stored.get(ref)

    def find_selected(self, pattern: str, message_type: str) -> Iterator[SowDefinition]:
        """Return the definitions of a type whose topics a name or an expression selects."""
        for topic in self.stored.values():
            if topic.ref.message_type != message_type:
                continue
            literally = topic.covers(pattern) or topic.ref.name == pattern
            # An expression may select any of the many topics that a Pattern stands for.
            many = topic.pattern is not None and self.is_pattern(pattern)
            if literally or many or self.matches(pattern, topic.ref.name):
                yield topic

    def is_pattern(self, topic: str) -> bool:
        """Return true if a topic is an expression, where expressions are allowed."""
        return self.regex_topics and has_regex_characters(topic)

    def matches(self, pattern: str, name: str) -> bool:
        """Return true if `pattern` is a valid expression that matches `name`."""
        return self.is_pattern(pattern) and regex_error(pattern) is None and matches(pattern, name)

    def is_journaled(self, name: str, message_type: str) -> bool:
        """Return true if the transaction log records this topic, by name or by an expression."""
        return TopicRef(name, message_type) in self.journaled or any(
            ref.message_type == message_type and self.matches(ref.name, name)
            for ref in self.journaled_patterns
        )

    def register_journaled(self, logged: JournaledTopicSpec) -> None:
        """Register a topic of the transaction log."""
        ref = TopicRef(logged.name, logged.message_type)
        self.journaled.setdefault(ref, logged)
        if self.is_pattern(logged.name):
            self.journaled_patterns.append(ref)

    def register_stored(self, topic: SowDefinition) -> None:
        """Register a definition of the SOW section."""
        self.stored.setdefault(topic.ref, topic)
        if topic.pattern is not None:
            self.patterns.append(topic)
