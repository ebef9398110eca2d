"""Actions: triggers, steps, their options, and the variables that pass between them.

Source: AMPS User Guide, Configuring AMPS for Automation with Actions.
"""

import re
from typing import Final

from config_schema.catalogue import DEFAULT_VARIABLES, ModuleKind, ModuleRule
from config_schema.compile.modules import find_module
from config_schema.compile.option_values import VARIABLE
from config_schema.compile.options import check_options, read_options
from config_schema.compile.reader import ElementReader, did_you_mean
from config_schema.compile.scope import Scope
from config_schema.spec import ActionSpec, ActionStep, ModuleUse

_BYTE: Final = re.compile("AMPS_BYTE_[0-9A-F]{2}")


def compile_actions(root: ElementReader, scope: Scope) -> tuple[ActionSpec, ...]:
    """Compile the Actions section."""
    return tuple(
        _action(reader, scope, root) for reader in root.section_children("Actions", "Action")
    )


def _action(reader: ElementReader, scope: Scope, root: ElementReader) -> ActionSpec:
    if not reader.has("On"):
        reader.error("is missing but required: the trigger of the action", tag="On")
    if not reader.has("Do"):
        reader.error("is missing but required: a step of the action", tag="Do")
    variables = _Variables()
    triggers = []
    for trigger in reader.children("On"):
        use, rule = _use(trigger, ModuleKind.ON, scope, root)
        variables.add(rule, use)
        triggers.append(use)
    steps = []
    for step in reader.children("Do", "If"):
        kind = ModuleKind.DO if step.node.tag == "Do" else ModuleKind.IF
        use, rule = _use(step, kind, scope, root)
        variables.check(step)
        variables.add(rule, use)
        steps.append(ActionStep("do" if kind is ModuleKind.DO else "if", use))
    return ActionSpec(tuple(triggers), tuple(steps), reader.location)


def _use(
    reader: ElementReader, kind: ModuleKind, scope: Scope, root: ElementReader
) -> tuple[ModuleUse, ModuleRule | None]:
    name = reader.required("Module")
    rule = find_module(reader, name, kind, scope)
    if rule is not None:
        check_options(reader, rule, scope, are_templates=kind is not ModuleKind.ON)
        _check_needs(reader, rule, root)
    return ModuleUse(name, read_options(reader), reader.location), rule


def _check_needs(reader: ElementReader, rule: ModuleRule, root: ElementReader) -> None:
    """Warn about a module if this configuration lacks the section that it needs."""
    element: ElementReader | None = root
    for tag in rule.needs.split("/") if rule.needs else ():
        element = None if element is None else element.child(tag)
    if element is None:
        reader.warning(
            f"{rule.name} has no effect: the configuration has no {rule.needs}", tag="Module"
        )


class _Variables:
    """The context variables that are known to be set at one point of an action."""

    def __init__(self) -> None:
        self._names = set(DEFAULT_VARIABLES)
        self._is_complete = True

    def add(self, rule: ModuleRule | None, use: ModuleUse) -> None:
        """Add the variables that a trigger or a step sets."""
        if rule is None:
            self._is_complete = False
            return
        self._is_complete = self._is_complete and not rule.open_context
        self._names.update(rule.exports)
        for option in rule.exports_named_by:
            self._names.update(value.partition("=")[0].strip() for value in use.options.all(option))

    def check(self, step: ElementReader) -> None:
        """Warn about variables of a step that nothing before it sets: they would be empty."""
        options = step.child("Options")
        if options is None or not self._is_complete:
            return
        for option in options.children():
            for name in VARIABLE.findall(option.value):
                if name not in self._names and not _BYTE.fullmatch(name):
                    option.warning(
                        f"{{{{{name}}}}} is empty here: nothing before this step sets it",
                        did_you_mean(name, sorted(self._names)),
                    )
