"""The logical topics of the records in a table that topics of one Pattern share."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from server.storage.sow.record_batch import TopicColumn


class RowTopics:
    """Stores the topic of the record in each row.

    Args:
        capacity: the number of rows at first.

    Attributes:
        names: the topics, each once.
    """

    def __init__(self, capacity: int) -> None:
        self.names: Final[list[str]] = []
        self._numbers: Final[dict[str, int]] = {}  # by name: its index in `names`
        self._number_of_row: Final = array("I", bytes(4 * capacity))

    def add_row(self) -> None:
        """Add a row behind the others."""
        self._number_of_row.append(0)

    def set_topic(self, row: int, name: str) -> None:
        """Set the topic of the record in a row."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        self._number_of_row[row] = number

    def set_topics(self, rows: Sequence[int], topic: TopicColumn, start: int) -> None:
        """Set the topics of rows with records of a batch, of which `start` is the first."""
        if not isinstance(topic, str):
            for position, row in enumerate(rows, start):
                self.set_topic(row, topic[position])

    def row_mask(self, predicate: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Return for each row whether its record is of a topic that matches a predicate."""
        numbers = [number for number, name in enumerate(self.names) if predicate(name)]
        return np.isin(np.array(self._number_of_row, np.uint32), numbers)
