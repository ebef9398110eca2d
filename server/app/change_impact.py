"""Finds the consequences of a configuration change for operators and clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from config_schema.schema import ROOT
from config_schema.spec import ModuleSpec
from server.app.change_impact_rules import (
    CONCERNS,
    ENTRIES,
    REORDERED,
    SECURITY,
    SECURITY_RULE,
    SETTINGS,
    ChangeCase,
    ImpactArea,
    ImpactRule,
)

if TYPE_CHECKING:
    from config_schema.settings import SettingChange, SettingsEntry
    from config_schema.spec import AdminSpec, InstanceSpec, TransportSpec


@dataclass(frozen=True, slots=True)
class ChangeImpact:
    """The consequence of a change.

    Attributes:
        area: the data, systems or people concerned.
        text: the consequence in sentences; "" if the change explains itself.
    """

    area: ImpactArea
    text: str


def find_change_impact(change: SettingChange, old: InstanceSpec, new: InstanceSpec) -> ChangeImpact:
    """Return the consequence of a change.

    Args:
        change: one difference.
        old: the instance before the change.
        new: the instance after it.
    """
    concern, words = _rule(change)
    if any(map(_is_security_module, (change.before, change.after), (old, new))):
        concern = ImpactArea.SECURITY
    case = ChangeCase(change, old, new)
    if isinstance(words, str):
        return ChangeImpact(concern, words.format(old=case.before, new=case.after))
    return ChangeImpact(concern, words(case))


def _rule(change: SettingChange) -> ImpactRule:
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


def _is_security_module(entry: SettingsEntry | None, instance: InstanceSpec) -> bool:
    """Return whether a part is a module that authentication or entitlement uses."""
    if entry is None or not isinstance(entry.part, ModuleSpec):
        return False
    owners: list[InstanceSpec | TransportSpec | AdminSpec] = [instance, *instance.transports]
    if instance.admin is not None:
        owners.append(instance.admin)
    uses = [use for owner in owners for use in (owner.authentication, owner.entitlement)]
    return any(use is not None and use.module == entry.part.name for use in uses)


def _concern(path: str) -> ImpactArea:
    """Return the default concern of a part of the configuration."""
    concerns = (concern for start, concern in CONCERNS.items() if path.startswith(start))
    return next(concerns, ImpactArea.OPERATION)
