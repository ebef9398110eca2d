"""What a change of the configuration means for those who run the instance, and for its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from config_schema.schema import ROOT
from config_schema.spec import ModuleSpec
from server.program.consequence_rules import (
    CONCERNS,
    ENTRIES,
    REORDERED,
    SECURITY,
    SECURITY_RULE,
    SETTINGS,
    Case,
    Concern,
    Rule,
)

if TYPE_CHECKING:
    from config_schema.settings import Change, Entry
    from config_schema.spec import AdminSpec, InstanceSpec, TransportSpec


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a change means.

    Attributes:
        concern: whom it concerns.
        text: in sentences; "" where the change speaks for itself.
    """

    concern: Concern
    text: str


def consequence_of(change: Change, old: InstanceSpec, new: InstanceSpec) -> Consequence:
    """Say what a change means.

    Args:
        change: one thing that differs.
        old: the instance as it is.
        new: as it is to be.
    """
    concern, words = _rule(change)
    if any(map(_secures, (change.before, change.after), (old, new))):
        concern = Concern.SECURITY
    case = Case(change, old, new)
    if isinstance(words, str):
        return Consequence(concern, words.format(old=case.before, new=case.after))
    return Consequence(concern, words(case))


def _rule(change: Change) -> Rule:
    path = (change.entries[-1].path if change.entries else change.path).removeprefix(f"{ROOT}/")
    if change.kind == "reordered":
        return REORDERED
    if not change.key:
        return ENTRIES.get((change.kind, path), (_concern(path), ""))
    section = change.key.partition("/")[0]
    if section in SECURITY:
        return SECURITY_RULE
    settings = SETTINGS.get(path, {})
    return settings.get(change.key, settings.get(section, (_concern(path), "")))


def _secures(entry: Entry | None, instance: InstanceSpec) -> bool:
    """Whether a part is a module that decides who may do what."""
    if entry is None or not isinstance(entry.part, ModuleSpec):
        return False
    places: list[InstanceSpec | TransportSpec | AdminSpec] = [instance, *instance.transports]
    if instance.admin is not None:
        places.append(instance.admin)
    uses = [use for place in places for use in (place.authentication, place.entitlement)]
    return any(use is not None and use.module == entry.part.name for use in uses)


def _concern(path: str) -> Concern:
    """Whom a part of the configuration concerns unless something better is known."""
    found = (concern for start, concern in CONCERNS.items() if path.startswith(start))
    return next(found, Concern.OPERATION)
