"""ampServer --diff: shows the changes if the instance were started with another configuration."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from config_schema.configuration_text import redact_value
from config_schema.problems import Problem, Problems, Severity
from config_schema.schema import ROOT
from config_schema.settings import ChangeSide, SettingChange, SettingsEntry, compare
from config_schema.spec import InstanceSpec
from config_schema.topology import InstanceDescription, check_topology, describe
from server.app.change_impact import ChangeImpact, find_change_impact
from server.app.change_impact_rules import ImpactArea, replicates
from server.app.check_report import print_problems
from server.app.configuration import Configuration, read_configuration
from server.app.stdio import put, say

SAME: Final = 0
DIFFERENT: Final = 1
TROUBLE: Final = 2

_INDENT: Final = "    "
_WIDTH: Final = 100
_LOCATION: Final = re.compile(r"\S+:\d+")
_CHANGE_WORDS: Final = {
    "added": " is added",
    "removed": " is removed",
    "reordered": " in another order",
}


def show_differences(paths: Sequence[str], defines: Mapping[str, str], *, as_json: bool) -> int:
    """Print the differences of two configurations, and their consequences.

    Args:
        paths: the configuration in use, the one to replace it, and those of instances that it
            replicates with.
        defines: variables given on the command line.
        as_json: print a JSON object.

    Returns:
        The exit code, like that of diff(1): 0 if nothing would change, 1 if something would, 2 if
        the configurations cannot be compared.

    Raises:
        OutputError: the output cannot be written.
    """
    read = [read_configuration(path, defines) for path in paths]
    for document in read:
        print_problems(document.problems, Severity.ERROR)
    old, new, *peers = read
    specs = [document.spec for document in read if document.spec is not None]
    before, after = old.settings, new.settings
    if len(specs) < len(read) or before is None or after is None:
        unusable = [document.path for document in read if document.spec is None]
        say(f"not compared: {' and '.join(unusable)} cannot be used")
        return TROUBLE
    changes = compare(before, after)
    secrets = old.secrets | new.secrets
    differences = [
        (without_secrets(change, secrets), find_change_impact(change, specs[0], specs[1]))
        for change in changes
    ]
    refusals = _new_refusals(specs[0], specs[1], specs[2:])
    refusals.redact_values(frozenset().union(*(document.secrets for document in read)))
    if as_json:
        put(f"{_as_json(old.path, new.path, differences, refusals)}\n")
    elif differences or refusals:
        put("".join(f"{line}\n" for line in _as_text(differences, refusals)))
    _conclude(old, new, differences, refusals, peers)
    return DIFFERENT if differences else SAME


def without_secrets(change: SettingChange, secrets: frozenset[str]) -> SettingChange:
    """Return a change with secrets redacted."""
    name = change.path.rpartition("/")[2]
    old, new = (
        side and replace(side, text=redact_value(name, side.text, secrets))
        for side in (change.old, change.new)
    )
    return replace(change, old=old, new=new)


def _new_refusals(old: InstanceSpec, new: InstanceSpec, peers: Sequence[InstanceSpec]) -> Problems:
    """Return the errors of replication with other instances that only the new configuration has."""
    refusals = Problems()
    if not peers:
        return refusals
    others = [describe(peer) for peer in peers]
    old_errors = {_essence(problem) for problem in _errors(describe(old), others)}
    for error in _errors(describe(new), others):
        if _essence(error) not in old_errors:
            refusals.add(error)
    return refusals


def _errors(
    instance: InstanceDescription, others: Sequence[InstanceDescription]
) -> Iterator[Problem]:
    for finding in check_topology([instance, *others]):
        if finding.is_error:
            yield finding.problem


def _essence(problem: Problem) -> tuple[str, str]:
    """Return the element and message of a problem, without locations."""
    return problem.element, _LOCATION.sub("", problem.message)


def _conclude(
    old: Configuration,
    new: Configuration,
    differences: Sequence[tuple[SettingChange, ChangeImpact]],
    refusals: Problems,
    peers: Sequence[Configuration],
) -> None:
    if not differences:
        say(f"{old.path} and {new.path} amount to the same")
        return
    count = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
    graver = [concern for concern in ImpactArea if concern is not ImpactArea.OPERATION]
    counts = {
        concern: sum(consequence.area is concern for _, consequence in differences)
        for concern in graver
    }
    listed = ", ".join(f"{number} {concern}" for concern, number in counts.items() if number)
    say(f"{count}{f' ({listed})' if listed else ''}; the new file counts from the next start on")
    if refusals:
        say("links with other instances would be refused: see above")
    specs = [document.spec for document in (old, new) if document.spec is not None]
    if counts[ImpactArea.PEERS] and not peers and any(map(replicates, specs)):
        say("give the files of the other instances as well to see whether their links still fit")


# Text output


def _as_text(
    differences: Sequence[tuple[SettingChange, ChangeImpact]], refusals: Problems
) -> Iterator[str]:
    for change, consequence in differences:
        yield f"{consequence.area}: {change_title(change)}{_CHANGE_WORDS.get(change.kind, '')}"
        for mark, side in (("-", change.old), ("+", change.new)):
            if side is not None:
                yield f"  {mark} {side.location}: {_text(side)}"
        if consequence.text:
            yield textwrap.fill(
                consequence.text,
                _WIDTH,
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
    for problem in refusals:
        yield f"{ImpactArea.PEERS}: {problem}"


def change_title(change: SettingChange) -> str:
    """Return the path of entries and the element, as in `SOW/Topic orders (json): Key`."""
    title, around = "", ROOT
    for entry in change.entries[1:]:
        tag = entry.path.removeprefix(f"{around}/")
        title += f"{tag} {entry.name}: " if entry.name else f"{tag}/"
        around = entry.path
    if change.kind == "reordered":
        title += change.path.removeprefix(f"{around}/")
    return f"{title}{change.key}".rstrip(":/ ") or ROOT


def _text(side: ChangeSide) -> str:
    return f"{side.text} (default)" if side.is_default else side.text


# JSON output


def _as_json(
    old: str,
    new: str,
    differences: Sequence[tuple[SettingChange, ChangeImpact]],
    refusals: Problems,
) -> str:
    document = {
        "old": old,
        "new": new,
        "same": not differences,
        "changes": [_change(change, consequence) for change, consequence in differences],
        "refusals": [
            {
                "file": problem.location.file,
                "line": problem.location.line,
                "element": problem.element,
                "message": problem.message,
            }
            for problem in refusals
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _change(change: SettingChange, consequence: ChangeImpact) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "concern": consequence.area,
        "element": f"/{change.path}",
        "entry": [_entry(entry) for entry in change.entries[1:]],
        "old": _side(change.old),
        "new": _side(change.new),
        "meaning": consequence.text,
    }


def _entry(entry: SettingsEntry) -> dict[str, str]:
    return {"element": f"/{entry.path}", "name": entry.name}


def _side(side: ChangeSide | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "value": side.text,
        "default": side.is_default,
        "file": side.location.file,
        "line": side.location.line,
    }
