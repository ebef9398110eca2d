"""The names of topics as tables, for SQL in the server and on Spark.

A topic has its own name if no other message type has a topic of that name, and else the name with
its message type before it: `orders`, but `json.orders` and `nvfix.orders`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class TableName(NamedTuple):
    """The name of a topic as a table.

    Attributes:
        qualifier: the message type; empty if the name alone says which topic it is.
        name: the topic's name.
    """

    qualifier: str
    name: str

    def __str__(self) -> str:
        """Return it as one name."""
        return f"{self.qualifier}.{self.name}" if self.qualifier else self.name


def table_names(topics: Iterable[tuple[str, str]]) -> Sequence[TableName]:
    """Return the names of some topics as tables, in their order.

    Args:
        topics: the name and the message type of each; all that are tables in the same place.
    """
    listed = list(topics)
    counts = Counter(name for name, _ in listed)
    return [
        TableName("" if counts[name] == 1 else message_type, name) for name, message_type in listed
    ]
