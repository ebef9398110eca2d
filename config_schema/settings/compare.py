"""The differences between two instances.

Entries are paired by their identities, never by position: first those that are certainly the same,
then, of the rest, those that probably correspond. So an action with a changed schedule is one
change, not one removed action and one added action.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from config_schema.problems import Location
from config_schema.settings.entries import Setting, SettingsEntry, SettingValue
from config_schema.settings.shown import NOT_SET_TEXT
from config_schema.spec import TopicSpec

ChangeKind = Literal["added", "removed", "changed", "reordered"]

_STEPS: Final = ("Action/Do", "Action/If")
_ORDERED: Final = (*_STEPS, "Transport/TransportFilter", "Destination/Transport")
"""Entries with an order that has an effect."""

_MAX_WHOLE_ITEMS: Final = 4
"""Of a list longer than this, only the items that the other list lacks are shown."""


@dataclass(frozen=True, slots=True)
class ChangeSide:
    """One side of a change.

    Attributes:
        text: the written form, or the default; "" if the entry does not exist.
        location: the line of the element, or of the entry that would contain it.
        is_default: true if it is not written.
    """

    text: str
    location: Location
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One difference.

    Attributes:
        kind: `added` and `removed` are of whole entries, `reordered` of entries whose order counts,
            `changed` of a setting.
        path: the canonical path of the element.
        key: the element within its entry; "" for the entry itself.
        entries: the entries that contain it, outermost first, as in the new configuration; as in
            the old one if it exists only there.
        old: the old state; None if it did not exist.
        new: the new state; None if it will not exist.
        before: the entry of the old configuration; None if it has none.
        after: the entry of the new configuration; None if it has none.
    """

    kind: ChangeKind
    path: str
    key: str
    entries: tuple[SettingsEntry, ...]
    old: ChangeSide | None
    new: ChangeSide | None
    before: SettingsEntry | None
    after: SettingsEntry | None


def compare(old: SettingsEntry, new: SettingsEntry) -> list[SettingChange]:
    """Return the differences between two instances, in the order of the new configuration.

    Args:
        old: the current instance.
        new: the instance that replaces it.
    """
    return list(_compare(old, new, ()))


def _compare(
    old: SettingsEntry, new: SettingsEntry, around: tuple[SettingsEntry, ...]
) -> Iterator[SettingChange]:
    path = (*around, new)
    if old.path != new.path:
        kinds = [ChangeSide(_tag(entry), entry.location) for entry in (old, new)]
        yield SettingChange("changed", new.path, "", path, kinds[0], kinds[1], old, new)
        return
    for key in dict.fromkeys([*new.settings, *old.settings]):
        before, after = old.settings.get(key), new.settings.get(key)
        if before is None or after is None or before.value != after.value:
            yield _changed(key, before, after, old, new, path)
    yield from _compare_entries(old, new, path)


def _changed(
    key: str,
    before: Setting | None,
    after: Setting | None,
    old: SettingsEntry,
    new: SettingsEntry,
    path: tuple[SettingsEntry, ...],
) -> SettingChange:
    setting = after or before
    if setting is None:
        raise AssertionError("one of the two has it")
    sides = _side(before, after, old), _side(after, before, new)
    return SettingChange("changed", setting.path, key, path, *sides, old, new)


def _side(setting: Setting | None, other: Setting | None, entry: SettingsEntry) -> ChangeSide:
    if setting is None:
        return ChangeSide(NOT_SET_TEXT, entry.location, is_default=True)
    text, items = setting.text, setting.items
    if other is not None and max(len(items), len(other.items)) > _MAX_WHOLE_ITEMS:
        own_items = _without(items, other.items)
        if own_items or _without(other.items, items):
            items, text = own_items, ", ".join(item.text for item in own_items) or "without these"
    where = next((item.location for item in items if item.location), None)
    written = next((item.location for item in setting.items if item.location), entry.location)
    return ChangeSide(text, where or written, is_default=not setting.is_written)


def _without(
    items: Iterable[SettingValue], others: Iterable[SettingValue]
) -> tuple[SettingValue, ...]:
    known = {item.value for item in others}
    return tuple(item for item in items if item.value not in known)


def _compare_entries(
    old: SettingsEntry, new: SettingsEntry, path: tuple[SettingsEntry, ...]
) -> Iterator[SettingChange]:
    pairs = _pair(old.entries, new.entries)
    known = {id(before) for before, _ in pairs if before}
    removed_entries = [entry for entry in old.entries if id(entry) not in known]
    for before, after in pairs:
        if before is None:
            side = ChangeSide(_title(after), after.location)
            yield SettingChange("added", after.path, "", (*path, after), None, side, None, after)
        else:
            yield from _compare(before, after, path)
    for entry in removed_entries:
        side = ChangeSide(_title(entry), entry.location)
        yield SettingChange("removed", entry.path, "", (*path, entry), side, None, entry, None)
    yield from _reordered(old.entries, pairs, path)


def _pair(
    old: Sequence[SettingsEntry], new: Sequence[SettingsEntry]
) -> list[tuple[SettingsEntry | None, SettingsEntry]]:
    """Return each new entry with its old counterpart or None; an old entry is paired only once."""
    counterparts: dict[int, SettingsEntry] = {}
    free = {id(entry): entry for entry in old}
    max_identities = max((len(entry.identities) for entry in (*old, *new)), default=0)
    for level in range(max_identities):
        unpaired: defaultdict[Hashable, list[SettingsEntry]] = defaultdict(list)
        for entry in free.values():
            if level < len(entry.identities):
                unpaired[_key(entry, level)].append(entry)
        for entry in new:
            same = unpaired[_key(entry, level)] if level < len(entry.identities) else []
            if same and id(entry) not in counterparts:
                counterparts[id(entry)] = same.pop(0)
                del free[id(counterparts[id(entry)])]
    return [(counterparts.get(id(entry)), entry) for entry in new]


def _key(entry: SettingsEntry, level: int) -> Hashable:
    """Return the pairing key: without the kind of topic, because a name means the same topic."""
    return entry.path.rpartition("/")[0], type(entry.identities[level]), entry.identities[level]


def _reordered(
    old: Sequence[SettingsEntry],
    pairs: Sequence[tuple[SettingsEntry | None, SettingsEntry]],
    entry_path: tuple[SettingsEntry, ...],
) -> Iterator[SettingChange]:
    """Report entries in a different order, where the order has an effect."""
    positions = {id(entry): position for position, entry in enumerate(old)}
    groups: defaultdict[str, list[tuple[SettingsEntry, SettingsEntry]]] = defaultdict(list)
    for before, after in pairs:
        if before is not None and _order_counts(after):
            groups[_ordered_as(after)].append((before, after))
    for path, members in groups.items():
        earlier = sorted(members, key=lambda pair: positions[id(pair[0])])
        if earlier != members:
            texts = [_in_order([after for _, after in order]) for order in (earlier, members)]
            before_side = ChangeSide(texts[0], earlier[0][0].location)
            after_side = ChangeSide(texts[1], members[0][1].location)
            yield SettingChange(
                "reordered", path, "", entry_path, before_side, after_side, None, None
            )


def _order_counts(entry: SettingsEntry) -> bool:
    """Return true if the order of such entries has an effect.

    Patterns may match the same topics, which then belong to the first.
    """
    if isinstance(entry.part, TopicSpec):
        return entry.part.pattern is not None
    return entry.path.endswith(_ORDERED)


def _ordered_as(entry: SettingsEntry) -> str:
    """Return the path to report the order under: the steps of an action have one order."""
    return re.sub("/If$", "/Do", entry.path)


def _in_order(entries: Sequence[SettingsEntry]) -> str:
    """Return the names of entries; entries with the same name are shown with their options."""
    names = [_title(entry) for entry in entries]
    return ", ".join(
        name if names.count(name) == 1 else f"{name}: {_distinguishing_values(entry)}"
        for name, entry in zip(names, entries, strict=True)
    )


def _distinguishing_values(entry: SettingsEntry) -> str:
    """Return the values that distinguish steps or transports with one name; no possible secrets."""
    prefixes = ("Options/",) if entry.path.endswith(_STEPS) else ("InetAddr",)
    values = (
        setting.text for setting in entry.settings.values() if setting.key.startswith(prefixes)
    )
    return " ".join(values)


def _title(entry: SettingsEntry) -> str:
    return entry.name or _tag(entry)


def _tag(entry: SettingsEntry) -> str:
    return entry.path.rpartition("/")[2]
