"""The options of modules as comparable values: `60s` and `1m` are the same interval."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from config_schema.catalogue import Catalogue, ModuleKind, ModuleRule, OptionRule, ValueKind
from config_schema.spec import ModuleSpec, Option
from config_schema.standard_modules import STANDARD_MODULES
from config_schema.units import UnitError, parse_bool, parse_count, parse_interval


def rule_of(
    name: str, kind: ModuleKind, catalogue: Catalogue, modules: Sequence[ModuleSpec]
) -> ModuleRule | None:
    """Return the rule of a module that is used.

    Args:
        name: the name that it is used by.
        kind: its use.
        catalogue: the modules of the program.
        modules: the modules that the configuration loads.

    Returns:
        Its rule; None for the user's own modules: their options are not known here.
    """
    built_in = {**STANDARD_MODULES.get(kind, {}), **catalogue.modules(kind)}
    if name in built_in:
        return built_in[name]
    loaded = next((module for module in modules if module.name == name), None)
    library = catalogue.libraries.get(loaded.library_name) if loaded else None
    return library.uses.get(kind) if library else None


def meaning(rule: OptionRule | None, option: Option) -> Hashable:
    """Return the value of an option, equal for texts that mean the same.

    Args:
        rule: the rule of the option, if known.
        option: the option as it is given.
    """
    if option.children:
        return option.value, tuple((child.name, meaning(None, child)) for child in option.children)
    return option.value if rule is None else _read(rule, option.value)


def text_of(option: Option) -> str:
    """Return the content of an option, in one line."""
    inside = [f"<{child.name}>{text_of(child)}</{child.name}>" for child in option.children]
    return "".join([option.value, *inside])


def default_of(rule: OptionRule) -> Hashable:
    """Return the value of an option with a default when it is not given."""
    return _read(rule, rule.default or "")


def _read(rule: OptionRule, text: str) -> Hashable:
    try:
        return _READERS.get(rule.value, str)(text)
    except UnitError:  # it has a {{VARIABLE}}, whose value is not known yet
        return text


def _words(text: str) -> Hashable:
    return tuple(sorted(word.strip().lower() for word in text.split(",")))


def _percentage(text: str) -> Hashable:
    return parse_count(text.strip().removesuffix("%"))


_READERS: Final[Mapping[ValueKind, Callable[[str], Hashable]]] = {
    ValueKind.INTERVAL: parse_interval,
    ValueKind.COUNT: parse_count,
    ValueKind.BOOLEAN: parse_bool,
    ValueKind.PERCENTAGE: _percentage,
    ValueKind.CHOICE: str.lower,
    ValueKind.CHOICES: _words,
    ValueKind.SIGNAL: str.upper,
}
