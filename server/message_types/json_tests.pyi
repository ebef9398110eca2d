"""Decides simple filters for many JSON bodies, in C; json_tests.pyx describes the design."""

from collections.abc import Sequence

from server.message_types.json_read import JsonPathNode, SlotTest

class FilterTests:
    """Filters that are decided together. Use one per thread.

    Args:
        members: the wanted members of the outermost object.
        slots: number of wanted values.
        filters: for each filter, the tests that must hold, at least one.

    Raises:
        ValueError: there are more filters than can be decided together.
    """

    def __init__(
        self, members: Sequence[JsonPathNode], slots: int, filters: Sequence[Sequence[SlotTest]]
    ) -> None: ...
    def decide(self, bodies: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """Decide the filters for bodies.

        Returns:
            Each range of bodies that match the same filters, as its begin, its end, and the filters
            as bits, the first filter as the lowest; `bulk.UNDECIDED` instead of the bits if they
            are not known. Bodies that no filter matches are left out.
        """
