"""The tables of action modules hold together."""

import re

import pytest

from actions.catalogue import ACTION_MODULES
from config_schema.catalogue import ModuleKind, ModuleRule, ValueKind

RULES = [(kind, rule) for kind, table in ACTION_MODULES.items() for rule in table.values()]
PREFIX = {
    ModuleKind.ON: "amps-action-on-",
    ModuleKind.DO: "amps-action-do-",
    ModuleKind.IF: "amps-action-if-",
}


@pytest.mark.parametrize(("kind", "rule"), RULES, ids=lambda value: getattr(value, "name", ""))
def test_a_module_is_described_completely(kind: ModuleKind, rule: ModuleRule) -> None:
    names = [option.name for option in rule.options]
    assert rule.name.startswith(PREFIX[kind])
    assert ACTION_MODULES[kind][rule.name] is rule
    assert len(set(names)) == len(names)
    for group in (*rule.one_of, *rule.together, rule.exports_named_by):
        assert set(group) <= set(names)
    for option in rule.options:
        assert option.help
        assert not (option.required and option.default is not None)
        assert bool(option.choices) == (option.value in (ValueKind.CHOICE, ValueKind.CHOICES))
        assert option.default is None or not option.choices or option.default in option.choices
    assert all(re.fullmatch("AMPS_[A-Z_]+", name) for name in rule.exports)
