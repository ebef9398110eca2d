"""The lookups of VALUE_LOOKUP, which the options of its module declare.

Source: AMPS User Guide, Special-Purpose Functions.
"""

from config_schema.catalogue import ExpressionKind, ValueKind
from config_schema.compile.reader import ElementReader, did_you_mean
from config_schema.compile.scope import Scope
from config_schema.spec import TopicRef
from config_schema.units import quoted

_FORM = "name;parameter count;message type;topic;return field;lookup field;..."


def check_lookups(root: ElementReader, scope: Scope) -> None:
    """Check the lookups that modules declare, after all topics have been read."""
    names: set[str] = set()
    for module in root.section_children("Modules", "Module"):
        rule = scope.modules.get(module.required("Name"))
        declared = rule.options if rule is not None else ()
        tags = [option.name for option in declared if option.value is ValueKind.LOOKUP]
        options = module.child("Options")
        for option in options.children(*tags) if options is not None and tags else ():
            _check(option, names, scope)


def _check(option: ElementReader, names: set[str], scope: Scope) -> None:
    parts = [part.strip() for part in option.value.split(";")]
    if len(parts) < 6 or not all(parts):
        option.error(f"{quoted(option.value)} is not a lookup: expected {_FORM}")
        return
    name, count, message_type, topic, *fields = parts
    if name in names:
        option.error(f"lookup {quoted(name)} is declared twice")
    names.add(name)
    if count != str(len(fields) - 1):
        option.error(
            f"lookup {quoted(name)} declares {count} parameters and has {len(fields) - 1}"
            " lookup fields"
        )
    for field in fields:
        error = option.catalogue.check_expression(field, ExpressionKind.PATH)
        if error is not None:
            option.error(f"lookup {quoted(name)}: {error}")
    if message_type not in scope.message_types:
        scope.check_message_type(option, message_type)
    elif not any(
        stored.ref.message_type == message_type
        and stored.covers(topic)
        and not stored.kind.endswith("Queue")
        for stored in scope.stored.values()
    ):
        typed = [ref.name for ref in scope.stored if ref.message_type == message_type]
        option.error(
            f"lookup {quoted(name)}: no topic {TopicRef(topic, message_type)} is defined in SOW",
            did_you_mean(topic, typed),
        )
