"""What can be done, and to what."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Parameters: TypeAlias = Mapping[str, str]

Do: TypeAlias = Callable[[str, Parameters], Coroutine[None, None, str]]
"""Does something to the entry with an id, with the parameters of the request; called on the
engine's thread. Returns what has been done, in a sentence; raises `Undone`."""


class Undone(Exception):
    """Something could not be done. The text says why."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that can be done.

    Attributes:
        name: the last part of its path.
        about: what it does, in a few words.
        do: does it.
        needs: parameters that a request must have.
        ends_sessions: whether everybody has to log on to the admin interface again.
        title: the name to display; that of the path without one.
    """

    name: str
    about: str
    do: Do
    needs: tuple[str, ...] = ()
    ends_sessions: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Things of one kind, and what can be done to each of them.

    Attributes:
        path: below /amps/administrator.
        deeds: what can be done.
        entries: gives the ids of what there is, each with what people know it by; called on the
            engine's thread. None if there are no entries: deeds are done to the instance itself.
    """

    path: tuple[str, ...]
    deeds: tuple[Deed, ...]
    entries: Callable[[], Mapping[str, str]] | None = None

    def deed(self, name: str) -> Deed | None:
        """The deed of a name."""
        return next((deed for deed in self.deeds if deed.name == name), None)
