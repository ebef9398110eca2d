"""The options of a Do or If module, together with the rules of the catalogue for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config_schema.catalogue import ModuleRule, OptionRule
    from config_schema.spec import Options


class StepOptions:
    """Options whose texts may hold variables.

    Args:
        options: the options as configured.
        rule: the module's rule.
    """

    def __init__(self, options: Options, rule: ModuleRule) -> None:
        self.get = options.get
        self.all = options.all
        self._rules = {option.name: option for option in rule.options}

    def rule(self, name: str) -> OptionRule:
        """Return the rule of an option; its kind determines the escaping of values."""
        return self._rules[name]
