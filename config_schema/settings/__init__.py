"""The effective settings of a configuration: every setting with its value and its origin.

The description of an instance (`config_schema.spec`) has the meaning of a configuration; the tree
that it was compiled from has the locations. Here both are combined: a `SettingsEntry` for each part
that may occur several times, with a `Setting` for each of its elements, written or left to its
default.

    tags.py      the element of each attribute of the description
    entries.py   an instance as entries and settings
    options.py   the options of modules, as comparable values
    shown.py     values as written in a configuration
    compare.py   the differences between two instances
    find.py      the elements that a name, a path or a line refers to

Nothing here knows how a program uses a setting.
"""

from config_schema.settings.compare import ChangeSide, SettingChange, compare
from config_schema.settings.entries import Setting, SettingsEntry, SettingValue, entries_of
from config_schema.settings.find import UnknownElementError, at_line, find_elements, nodes_at

__all__ = [
    "ChangeSide",
    "Setting",
    "SettingChange",
    "SettingValue",
    "SettingsEntry",
    "UnknownElementError",
    "at_line",
    "compare",
    "entries_of",
    "find_elements",
    "nodes_at",
]
