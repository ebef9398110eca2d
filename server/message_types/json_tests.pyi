"""Deciding simple filters for many JSON bodies, in C; the theory of it is in json_tests.pyx."""

from collections.abc import Sequence
from typing import Protocol

from server.message_types.json_fields import WantedMember

class SlotTest(Protocol):
    """A test of the value of a slot."""

    @property
    def slot(self) -> int:
        """The slot."""

    @property
    def operator(self) -> str:
        """`=`, `!=`, `<`, `<=`, `>`, `>=`, or `IN` or `NOT IN` for one or none of the literals."""

    @property
    def literals(self) -> Sequence[float | str]:
        """What the value is compared with: numbers below 2^53, or texts, not empty, in ASCII."""

class FilterTests:
    """Filters that are decided together. Use one per thread.

    Args:
        members: what is wanted of the outermost object.
        slots: how many values are wanted.
        filters: of each filter, the tests that have to hold, at least one.

    Raises:
        ValueError: these are more filters than can be decided.
    """

    def __init__(
        self, members: Sequence[WantedMember], slots: int, filters: Sequence[Sequence[SlotTest]]
    ) -> None: ...
    def decide(self, bodies: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """Decide them for bodies.

        Returns:
            Bodies in a row that the same filters match, as their begin, their end, and the filters
            as bits, the first filter as the lowest; `bulk.UNDECIDED` for these where it is not
            known. Bodies that no filter matches are left out.
        """
