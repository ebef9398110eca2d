"""Hints for misspelt or misplaced elements: the probable name, or the right place for it."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final

from config_schema import schema

_MIN_SIMILARITY: Final = 0.7
"""Minimum similarity of two words, as difflib measures it; `InetAdr` and `InetAddr` have 0.93."""

_MAX_LISTED: Final = 8
"""More names than this are not listed in a hint: they would bury the problem."""

_MAX_COMPARED: Final = 500
"""A longer list, such as the topics of a huge configuration, is compared up to here: it takes time
for every mistake."""

_MAX_COMPARED_LENGTH: Final = 64
"""Longer words are not misspellings, and comparing them takes time."""

_OFFLINE: Final = (
    "it is of an older AMPS: MessageMemoryLimit and MessageDiskLimit limit the messages that wait "
    "for slow clients, and MessageDiskPath is their directory"
)
_RETIRED: Final[Mapping[str, str]] = {
    "ClientBufferThreshold": _OFFLINE,
    "ClientOffline": _OFFLINE,
    "ClientOfflineDirectory": _OFFLINE,
    "ClientOfflineThreshold": _OFFLINE,
    "SlowClientDisconnect": _OFFLINE,
    "BatchSize": "it is of an older AMPS: FlushInterval is the time that entries of the "
    "transaction log wait to be written together",
}
"""Elements that the language has no longer, with their replacements."""


def nearest(word: str, known: Iterable[str], closeness: float = _MIN_SIMILARITY) -> str | None:
    """Return the known word that `word` was probably meant to be, or None; case does not matter."""
    if len(word) > _MAX_COMPARED_LENGTH:
        return None
    by_folded = {name.casefold(): name for name in islice(known, _MAX_COMPARED)}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=closeness)
    return by_folded[matches[0]] if matches else None


@lru_cache(maxsize=1024)
def for_element(name: str, parent_path: str) -> str | None:
    """Return a hint for an element that is not known inside its parent.

    Args:
        name: the element as written.
        parent_path: the canonical path of the element that it stands in.

    Returns:
        A hint ("did you mean InetAddr?", "Key belongs inside Topic"), or None without an idea.
    """
    if name in _RETIRED:
        return _RETIRED[name]
    allowed = [*schema.children(parent_path), *schema.synonyms(parent_path)]
    suggestion = nearest(name, allowed)
    places = _places(name, parent_path)
    if places and not (suggestion and suggestion.casefold() == name.casefold()):
        return f"{name} belongs inside {_either(places)}"
    if suggestion:
        return f"did you mean {suggestion}?"
    if 0 < len(allowed) <= _MAX_LISTED:
        return f"expected {_either(allowed)}"
    return None


def is_misplaced_or_misspelt(name: str, parent_path: str) -> bool:
    """Return whether an unknown element is nearly a known one, or is one of a neighbouring element.

    Such an element was meant to do something, also where unknown elements are tolerated.

    Args:
        name: the element as written.
        parent_path: the canonical path of the element that it stands in.
    """
    allowed = [*schema.children(parent_path), *schema.synonyms(parent_path)]
    if nearest(name, allowed) is not None:
        return True
    neighbours = [
        parent_path.rpartition("/")[0],
        *(f"{parent_path}/{child_name}" for child_name in allowed),
    ]
    return any(name in schema.children(path) for path in neighbours)


def _places(name: str, parent_path: str) -> list[str]:
    """Name the parents in which `name` is known and that are nearest to where it was written."""
    steps: dict[str, int] = {}
    for doc in schema.elements().values():
        if doc.name == name or name in doc.synonyms:
            parent = doc.parent.rpartition("/")[2]
            steps[parent] = min(steps.get(parent, 99), _steps(parent_path, doc.parent))
    return [parent for parent in steps if parent and steps[parent] == min(steps.values())][:3]


def _steps(start: str, end: str) -> int:
    """Count the steps from one element to another through the tree."""
    start_steps, end_steps = start.split("/"), end.split("/")
    shared = 0
    while (
        shared < min(len(start_steps), len(end_steps)) and start_steps[shared] == end_steps[shared]
    ):
        shared += 1
    return len(start_steps) + len(end_steps) - 2 * shared


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
