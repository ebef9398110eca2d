"""The checklist as text: boxes to tick; boxes that the program has checked are ticked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from config_schema.version import VERSION
from server.cli.doctor.configuration import counted
from server.cli.doctor.findings import CheckVerdict
from server.cli.doctor.migration.checklist import WHY_NOT, Checklist, ChecklistItem
from server.cli.doctor.migration.survey import ABSENT, DIFFERS, SAME

_DONE, _OPEN = "[x]", "[ ]"


def as_text(made: Checklist) -> str:
    """Return the checklist as text, in the order of docs/migration.md."""
    return "\n".join([*_lines(made), ""])


def _lines(made: Checklist) -> Iterator[str]:
    yield f"amps-doctor {VERSION}: from AMPS to Amperage, {made.path}"
    yield _summary(made)
    yield from _title("1. The configuration")
    yield from _configuration(made)
    yield from _title("2. Features that it uses")
    yield from _features(made)
    yield from _title("3. Modules")
    yield from _modules(made)
    yield from _title("4. Data")
    yield from _data(made)
    yield from _title("5. Clients")
    yield from _items(made.clients)
    yield from _title("6. Steps")
    yield from _items(made.steps)


def _title(text: str) -> Iterator[str]:
    yield ""
    yield text


def _summary(made: Checklist) -> str:
    if made.verdict is CheckVerdict.WRONG:
        return f"It cannot be used yet: {counted(made.errors, 'error')}."
    if made.absent_features:
        return f"It runs, but without {', '.join(made.absent_features)}."
    return (
        "It runs as it is."
        if made.verdict is CheckVerdict.OK
        else "It runs; some points need a look."
    )


def _configuration(made: Checklist) -> Iterator[str]:
    if not made.errors:
        yield f"  {_DONE} can be used as it is"
    yield from (f"  {_OPEN} {line}" for line in made.errors)
    yield from (f"  {_OPEN} {line}" for line in made.warnings)
    for where, path, reason in made.survey.ignored:
        yield f"  {_DONE} {where}: {path} has no effect here: {reason}"


def _features(made: Checklist) -> Iterator[str]:
    uses = made.survey.uses.values()
    for state, box in ((ABSENT, _OPEN), (DIFFERS, _OPEN), (SAME, _DONE)):
        for use in uses:
            if use.state == state:
                place = (
                    f"docs/compatibility.md, {use.feature.section}" if use.feature.section else ""
                )
                yield f"  {box} {state:9} {use.feature.name}{': ' if place else ''}{place}"


def _modules(made: Checklist) -> Iterator[str]:
    if not made.survey.modules:
        yield f"  {_DONE} none"
    for module in made.survey.modules:
        box = _OPEN if module.state == ABSENT else _DONE
        library = f" ({module.library})" if module.library else ""
        purposes = f" for {', '.join(module.used_for)}" if module.used_for else ""
        advice = f": {module.advice}" if module.advice else ""
        yield f"  {box} {module.name}{library}{purposes}{advice}"


def _data(made: Checklist) -> Iterator[str]:
    if made.no_files_reason:
        yield f"  {_OPEN} files of AMPS have not been looked for: {made.no_files_reason}"
    elif not made.files:
        yield f"  {_DONE} no files of AMPS in the places of this server's"
    for path, what in made.files:
        yield f"  {_OPEN} {path} {what}"
    if made.files:
        yield f"      {WHY_NOT}"
    yield from _items(made.data_steps)


def _items(items: Iterable[ChecklistItem]) -> Iterator[str]:
    for item in items:
        page = f" ({item.page})" if item.page else ""
        yield f"  {_OPEN} {item.text}{page}"
        yield from (f"        $ {command}" for command in item.commands)
