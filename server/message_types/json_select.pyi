"""Keeps a few members of JSON objects, in C; the theory of it is in json_select.pyx."""

from collections.abc import Iterable, Sequence

class MemberSelector:
    """Selects members of the outermost object of bodies. Use one per thread.

    Args:
        names: the names of the members to keep, of ASCII that JSON does not escape.
    """

    def __init__(self, names: Sequence[bytes]) -> None: ...
    def select_all(self, bodies: Iterable[bytes]) -> list[bytes | None]:
        """Return each body with the wanted members only; None for one that is not plain."""
