"""Makes the second half of docs/actions.md from the catalogue.

`python -m actions.reference_page docs/actions.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from actions.catalogue import ACTION_MODULES
from config_schema.catalogue import ModuleKind, ModuleRule, OptionRule

BEGIN: Final = "## Modules\n"

_TITLES: Final = {
    ModuleKind.ON: "On: when an action runs",
    ModuleKind.IF: "If: whether it goes on",
    ModuleKind.DO: "Do: what it does",
}


def modules_part() -> str:
    """Return the modules with their options and variables, in Markdown."""
    return "\n".join([BEGIN, *_note(), *(line for kind in _TITLES for line in _chapter(kind))])


def _note() -> Iterator[str]:
    yield "This part is generated from `actions/catalogue.py`; after a change there, run"
    yield "`python -m actions.reference_page docs/actions.md`.\n"


def _chapter(kind: ModuleKind) -> Iterator[str]:
    yield f"### {_TITLES[kind]}\n"
    for rule in ACTION_MODULES[kind].values():
        yield from _module(rule)


def _module(rule: ModuleRule) -> Iterator[str]:
    yield f"#### {rule.name}\n"
    library = f" Comes with the library `{rule.library}`." if rule.library else ""
    yield f"{rule.help[0].upper()}{rule.help[1:]}.{library}\n"
    if rule.options:
        yield "| option | value | what it is | if left out |\n|---|---|---|---|"
        yield from (_option(option, rule) for option in rule.options)
        yield ""
    if rule.exports:
        yield f"Variables: {', '.join(f'`{name}`' for name in rule.exports)}\n"


def _option(option: OptionRule, rule: ModuleRule) -> str:
    value = " or ".join(option.choices) or option.value.value
    many = ", any number of times" if option.repeatable else ""
    alternatives = [group for group in rule.one_of if option.name in group]
    if option.required:
        absent = "required"
    elif alternatives:
        absent = f"one of {', '.join(alternatives[0])} is required"
    else:
        absent = "" if option.default is None else f"`{option.default}`"
    return f"| `{option.name}` | {value}{many} | {option.help} | {absent} |"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    written, _, _ = page.read_text("utf-8").partition(BEGIN)
    page.write_text(written + modules_part(), "utf-8")
