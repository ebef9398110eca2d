"""What a configuration amounts to: every setting with the value that counts, and where it is from.

The description of an instance (`config_schema.spec`) says what a configuration means; the tree that
it was compiled from says where that was written. Here both are brought together: an `Entry` for
each part that there may be several of, with a `Setting` for each element that says something about
it, whether it was written or is left to its default.

    tags.py      which element an attribute of the description comes from
    entries.py   an instance as entries and settings
    options.py   the options of modules, in terms that can be compared
    shown.py     values as people write them
    compare.py   what two instances differ in
    find.py      which elements a name, a path or a line stands for

Nothing here knows what a program makes of a setting.
"""

from config_schema.settings.compare import Change, Side, compare
from config_schema.settings.entries import Entry, Item, Setting, entries_of
from config_schema.settings.find import UnknownElementError, at_line, find_elements, nodes_at

__all__ = [
    "Change",
    "Entry",
    "Item",
    "Setting",
    "Side",
    "UnknownElementError",
    "at_line",
    "compare",
    "entries_of",
    "find_elements",
    "nodes_at",
]
