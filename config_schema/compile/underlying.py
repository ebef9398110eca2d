"""The underlying topics of views and conflated topics: definitions that precede them.

A wrong reference is the most frequent error of a SOW section, so the hint searches for the intended
topic: the same name in another message type, a definition further down, a similar name.
"""

from config_schema.compile.reader import ElementReader, did_you_mean
from config_schema.compile.scope import Scope, SowDefinition
from config_schema.spec import TopicRef
from config_schema.units import quoted


def find_underlying(
    reader: ElementReader, ref: TopicRef, scope: Scope, *, same_type: bool = False
) -> SowDefinition | None:
    """Return the earlier definition that `ref` names; report it if there is none.

    Args:
        reader: the element that names it.
        ref: its name and message type.
        scope: the definitions so far.
        same_type: true if the derived topic must have its message type.
    """
    definition = scope.find_stored(ref)
    if definition is None and ref.name and ref.message_type in scope.message_types:
        reader.error(
            f"topic {quoted(ref.name)} of type {quoted(ref.message_type)} has not been defined "
            "before this place",
            _hint(ref, scope, same_type=same_type),
        )
    return definition


def _hint(ref: TopicRef, scope: Scope, *, same_type: bool) -> str:
    later = next((topic for topic in scope.not_yet_compiled if topic.ref == ref), None)
    if later is not None and later is scope.not_yet_compiled[0]:
        return "a topic cannot be derived from itself"
    if later is not None:
        return f"it is the {later.kind} at {later.node.location}: move it above this place"
    defined = (*scope.stored, *(topic.ref for topic in scope.not_yet_compiled))
    typed = [other for other in defined if other.name == ref.name]
    if typed and same_type:
        types = " or ".join(other.message_type for other in typed)
        return f"it is defined with another type: set MessageType to {types}"
    if typed:
        return f"it is defined with another type: write {' or '.join(map(str, typed))}"
    covering = next((topic for topic in scope.patterns if topic.covers(ref.name)), None)
    if covering is not None:
        return f"the Pattern of {quoted(covering.ref.name)} covers it, but does not define it"
    if scope.is_journaled(ref.name, ref.message_type):
        return "the transaction log records it, but it must be a topic of SOW as well"
    names = [stored.name for stored in scope.stored]
    return did_you_mean(ref.name, names) or "define it in SOW, above this place"
