"""Custom message types: Python modules named by a configuration's `<Library>`.

The library is the name of an importable module (`acme.feeds`) or the path of a file
(`./modules/feed.py`). It has a function

    def create_message_type(name: str, options: Mapping[str, Sequence[str]]) -> MessageType

which returns an object with all members of `server.message_types.base.MessageType`, and raises
`MessageTypeError` for invalid options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.message_types.base import Capabilities, MessageType, MessageTypeError
from server.util.plugin_loader import LibraryError, explain, load_entry_point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENTRY_POINT = "create_message_type"

_MEMBERS = tuple(member for member in vars(MessageType) if not member.startswith("_"))


def load_custom(name: str, library: str, options: Mapping[str, Sequence[str]]) -> MessageType:
    """Load a library and make the type with it.

    Raises:
        MessageTypeError: the library cannot be loaded, or its result is not a message type.
    """
    try:
        entry = load_entry_point(library, ENTRY_POINT, "name, options")
    except LibraryError as error:
        raise MessageTypeError("Library", str(error)) from error
    try:
        instance = entry(name, options)
    except MessageTypeError:
        raise
    except Exception as error:  # user code may raise anything
        raise MessageTypeError(
            "Library", f"{library}: {ENTRY_POINT} failed: {explain(error)}"
        ) from error
    missing = ", ".join(member for member in _MEMBERS if not hasattr(instance, member))
    if missing:
        made_by = f"{library}: {ENTRY_POINT} returned {type(instance).__name__}"
        raise MessageTypeError("Library", f"{made_by}, which lacks {missing}")
    if not isinstance(instance.capabilities, Capabilities):
        raise MessageTypeError("Library", f"{library}: capabilities must be a Capabilities object")
    checked: MessageType = instance
    return checked
