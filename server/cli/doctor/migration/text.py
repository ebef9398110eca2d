"""The checklist as text: boxes to tick; boxes that the program has checked are ticked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from config_schema.version import VERSION
from server.admin.diagnosis.findings import CheckVerdict
from server.cli.doctor.configuration import counted
from server.cli.doctor.migration.checklist import WHY_NOT, Checklist, ChecklistItem
from server.cli.doctor.migration.survey import ABSENT, DIFFERS, SAME

_DONE, _OPEN = "[x]", "[ ]"


def as_text(checklist: Checklist) -> str:
    """Return the checklist as text, in the order of docs/migration.md."""
    return "\n".join([*_lines(checklist), ""])


def _lines(checklist: Checklist) -> Iterator[str]:
    yield f"amps-doctor {VERSION}: from AMPS to Amperage, {checklist.path}"
    yield _summary(checklist)
    yield from _title("1. The configuration")
    yield from _configuration(checklist)
    yield from _title("2. Features that it uses")
    yield from _features(checklist)
    yield from _title("3. Modules")
    yield from _modules(checklist)
    yield from _title("4. Data")
    yield from _data(checklist)
    yield from _title("5. Clients")
    yield from _items(checklist.clients)
    yield from _title("6. Steps")
    yield from _items(checklist.steps)


def _title(text: str) -> Iterator[str]:
    yield ""
    yield text


def _summary(checklist: Checklist) -> str:
    if checklist.verdict is CheckVerdict.ERROR:
        return f"It cannot be used yet: {counted(checklist.errors, 'error')}."
    if checklist.absent_features:
        return f"It runs, but without {', '.join(checklist.absent_features)}."
    return (
        "It runs as it is."
        if checklist.verdict is CheckVerdict.OK
        else "It runs; some points need a look."
    )


def _configuration(checklist: Checklist) -> Iterator[str]:
    if not checklist.errors:
        yield f"  {_DONE} can be used as it is"
    yield from (f"  {_OPEN} {line}" for line in checklist.errors)
    yield from (f"  {_OPEN} {line}" for line in checklist.warnings)
    for where, path, reason in checklist.survey.ignored:
        yield f"  {_DONE} {where}: {path} has no effect here: {reason}"


def _features(checklist: Checklist) -> Iterator[str]:
    uses = checklist.survey.uses.values()
    for state, box in ((ABSENT, _OPEN), (DIFFERS, _OPEN), (SAME, _DONE)):
        for use in uses:
            if use.state == state:
                position = (
                    f"docs/compatibility.md, {use.feature.section}" if use.feature.section else ""
                )
                yield f"  {box} {state:9} {use.feature.name}{': ' if position else ''}{position}"


def _modules(checklist: Checklist) -> Iterator[str]:
    if not checklist.survey.modules:
        yield f"  {_DONE} none"
    for module in checklist.survey.modules:
        box = _OPEN if module.state == ABSENT else _DONE
        library = f" ({module.library})" if module.library else ""
        purposes = f" for {', '.join(module.used_for)}" if module.used_for else ""
        advice = f": {module.advice}" if module.advice else ""
        yield f"  {box} {module.name}{library}{purposes}{advice}"


def _data(checklist: Checklist) -> Iterator[str]:
    if checklist.no_files_reason:
        yield f"  {_OPEN} files of AMPS have not been looked for: {checklist.no_files_reason}"
    elif not checklist.files:
        yield f"  {_DONE} no files of AMPS in the places of this server's"
    for path, description in checklist.files:
        yield f"  {_OPEN} {path} {description}"
    if checklist.files:
        yield f"      {WHY_NOT}"
    yield from _items(checklist.data_steps)


def _items(items: Iterable[ChecklistItem]) -> Iterator[str]:
    for item in items:
        page = f" ({item.page})" if item.page else ""
        yield f"  {_OPEN} {item.text}{page}"
        yield from (f"        $ {command}" for command in item.commands)
