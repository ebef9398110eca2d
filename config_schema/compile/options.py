"""The Options of a module against its rules: required, permitted and excluded options."""

from collections.abc import Collection, Sequence
from typing import Final

from config_schema.catalogue import ModuleRule
from config_schema.compile.option_values import OptionValue, check_value
from config_schema.compile.reader import ElementReader, did_you_mean
from config_schema.compile.scope import Scope
from config_schema.document import ConfigNode
from config_schema.spec import Option, Options

_NONE: Final = Options()


def read_options(reader: ElementReader) -> Options:
    """Return the Options of an element as the module will receive them."""
    options = reader.child("Options")
    return Options(tuple(_option(child.node) for child in options.children()) if options else ())


def _option(node: ConfigNode) -> Option:
    return Option(node.tag, node.text, tuple(map(_option, node.children)), node.location)


def check_options(
    reader: ElementReader,
    rule: ModuleRule,
    scope: Scope,
    inherited: Options = _NONE,
    *,
    are_templates: bool = False,
) -> None:
    """Check the Options of an element against the rule of the module that the element names.

    Args:
        reader: the element.
        rule: the rule.
        scope: the names of the rest of the configuration.
        inherited: options that were given where the module is loaded, and count here as well.
        are_templates: whether variables in the values are replaced when the module runs.
    """
    options = reader.child("Options") or ElementReader(
        ConfigNode("Options", "", {}, (), reader.location),
        f"{reader.node.tag}/Options",
        reader.report,
        reader.catalogue,
    )
    _check_presence(options, rule, {option.name for option in inherited})
    known = {option.name: option for option in rule.options}
    seen: set[str] = set()
    for option in options.children():
        name = option.node.tag
        if name not in known:
            if not rule.open_options:
                _report_unknown(option, rule, list(known))
            continue
        if name in seen and not known[name].repeatable:
            option.error(f"is given twice; {rule.name} takes it once")
        seen.add(name)
        message_type = options.text("MessageType") or ""
        check_value(OptionValue(option, known[name], scope, message_type, are_templates))
    if rule.check is not None:
        for problem in rule.check(read_options(reader), inherited):
            report = options.warning if problem.is_warning else options.error
            report(problem.text, problem.hint, tag=problem.option)


def _check_presence(options: ElementReader, rule: ModuleRule, inherited: Collection[str]) -> None:
    def is_given(name: str) -> bool:
        return name in inherited or options.has(name)

    for option in rule.options:
        if is_given(option.name):
            continue
        if option.required:
            options.error(f"is missing but required by {rule.name}: {option.help}", tag=option.name)
        elif option.absence:
            options.warning(f"is not given: {option.absence}", tag=option.name)
    for group in rule.one_of:
        given = [name for name in group if is_given(name)]
        if len(given) != 1:
            count_text = f"not both {' and '.join(given)}" if given else "found none"
            options.error(f"{rule.name} needs {' or '.join(group)}, {count_text}")
    for needed in rule.at_least:
        count = sum(len(options.texts(name)) or name in inherited for name in needed.options)
        if count < needed.count:
            options.error(
                f"{rule.name} needs at least {needed.count} of {', '.join(needed.options)}: "
                f"found {count or 'none'}"
            )
    for group in rule.together:
        given = [name for name in group if is_given(name)]
        absent = [name for name in group if name not in given]
        if given and absent:
            options.error(f"is missing: it is required with {' and '.join(given)}", tag=absent[0])


def _report_unknown(option: ElementReader, rule: ModuleRule, known: Sequence[str]) -> None:
    takes = f"it takes {', '.join(known)}" if known else "it takes no options"
    option.error(f"is not an option of {rule.name}", did_you_mean(option.node.tag, known) or takes)
