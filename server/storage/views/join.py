"""Rows of several topics: an incremental left outer join, updated as records of any topic change.

Theory of operation. The topics form a chain, the first one to the left. A row has one record of the
first topic and, of each further topic, a record that matches those to the left of it, or none if no
record matches. So a row grows from the left:

    orders      o1                          o1: /cust "c1", /item "i7"
    + customers o1 c1                       the customer whose /id is "c1"
    + items     o1 c1 -                     no item "i7": the row stays, with NULLs for it

The effect of a changed record follows from the part of each row to the left of it. These parts are
found by going from the record to the records that it matches, from these further to the left, and
then growing to the right again. The first matching record replaces the NULLs, and the removal of
the last one brings them back. All steps are look-ups in indexes over the joined fields, in both
directions; the cost is proportional to the rows that change.

The row values of every record are stored. So no record is read twice, and later changes of the
other topics have no influence.

Source: AMPS User Guide, Multiple Topic Aggregation: Join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from server.expressions import semantics

if TYPE_CHECKING:
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.storage.sow.records import Record, RecordChange
    from server.storage.views.projection import ProjectionRow
    from server.storage.views.sources import RowChange

JoinTexts: TypeAlias = tuple[str | None, ...]
"""The text values of joined fields, None for NULL."""


class JoinedTopic(NamedTuple):
    """One of the topics that are joined.

    Attributes:
        message_type: its message type.
        inputs: its fields that a row contains.
    """

    message_type: MessageType
    inputs: Sequence[Path]


class JoinedFields(NamedTuple):
    """Two fields that must have equal values; `left_field` belongs to the earlier topic.

    Attributes:
        left_topic: the place of the topic of `left_field`.
        left_field: a field.
        right_topic: the place of the topic of `right_field`.
        right_field: a field.
    """

    left_topic: int
    left_field: Path
    right_topic: int
    right_field: Path


class _JoinEntry:
    """The stored data of a record.

    Attributes:
        values: its part of a row.
        join_texts: the text values of its topic's joined fields.
    """

    __slots__ = ("join_texts", "values")

    def __init__(self, values: ProjectionRow, join_texts: JoinTexts) -> None:
        self.values = values
        self.join_texts = join_texts


_Part: TypeAlias = "tuple[_JoinEntry | None, ...]"
"""A row as far as it has grown: an entry of each topic, None where no record matches."""


class _JoinIndex:
    """Finds entries by their texts at some positions.

    Args:
        positions: the positions of the texts that form a key.
        nulls_match: entries with NULL are indexed as well.
    """

    __slots__ = ("_entries_by_key", "_nulls_match", "_text_positions")

    def __init__(self, positions: Sequence[int], *, nulls_match: bool) -> None:
        self._text_positions = tuple(positions)
        self._nulls_match = nulls_match
        self._entries_by_key: dict[JoinTexts, _JoinEntry | dict[_JoinEntry, None]] = {}

    def add(self, entry: _JoinEntry) -> None:
        """Add an entry."""
        key = self._key(entry)
        if key is None:
            return
        entries = self._entries_by_key.get(key)
        if entries is None:
            self._entries_by_key[key] = entry
        elif isinstance(entries, dict):
            entries[entry] = None
        else:
            self._entries_by_key[key] = {entries: None, entry: None}

    def remove(self, entry: _JoinEntry) -> None:
        """Remove an entry."""
        key = self._key(entry)
        if key is None:
            return
        entries = self._entries_by_key[key]
        if isinstance(entries, dict) and len(entries) > 1:
            del entries[entry]
        else:
            del self._entries_by_key[key]

    def is_indexable(self, entry: _JoinEntry) -> bool:
        """Return True if an entry is indexed at all."""
        return self._key(entry) is not None

    def find(self, key: JoinTexts) -> Collection[_JoinEntry]:
        """Return the entries of a key, oldest first."""
        entries = self._entries_by_key.get(key, ())
        return (entries,) if isinstance(entries, _JoinEntry) else entries

    def _key(self, entry: _JoinEntry) -> JoinTexts | None:
        key = tuple([entry.join_texts[position] for position in self._text_positions])
        return None if None in key and not self._nulls_match else key


class _JoinCondition(NamedTuple):
    """A join condition: a text of a topic's entry equals one of an entry further to the left.

    Attributes:
        own_position: the place of the text in the entry.
        topic_position: the other topic.
        other_position: the place of the text in its entry.
    """

    own_position: int
    topic_position: int
    other_position: int


class _JoinSide:
    """One topic of the chain, with its join conditions to topics on its left.

    Attributes:
        extract: reads the values and the joined fields of a record.
        entries: the entries of its records, by SOW key.
        conditions: its join conditions; empty for the first topic.
        own_index: its entries by the texts that `conditions` compares.
        anchor_topic: the topic with the entries that lead to the rows on the left.
        anchor_index: the entries of that topic, by the texts that `conditions` compares with it.
        other_conditions: the conditions of `conditions` that concern further topics.
        null_values: the values in place of a missing record.
    """

    def __init__(self, topic: JoinedTopic, fields: Sequence[Path]) -> None:
        self.extract: Final = topic.message_type.extractor([*topic.inputs, *fields])
        self.null_values: Final[ProjectionRow] = (None,) * len(topic.inputs)
        self.entries: dict[str, _JoinEntry] = {}
        self.indexes: list[_JoinIndex] = []
        self.conditions: list[_JoinCondition] = []
        self.anchor_topic = 0
        self.other_conditions: list[_JoinCondition] = []
        self.own_index: _JoinIndex
        self.anchor_index: _JoinIndex

    def set_conditions(
        self, conditions: Sequence[_JoinCondition], sides: Sequence[_JoinSide], *, nulls_match: bool
    ) -> None:
        """Join the topic to those on its left; called once, for all topics but the first."""
        self.conditions = list(conditions)
        self.anchor_topic = conditions[0].topic_position
        anchor_conditions = [fit for fit in conditions if fit.topic_position == self.anchor_topic]
        self.conditions = anchor_conditions + [
            fit for fit in conditions if fit.topic_position != self.anchor_topic
        ]
        self.other_conditions = self.conditions[len(anchor_conditions) :]
        self.own_index = _JoinIndex(
            [fit.own_position for fit in self.conditions], nulls_match=nulls_match
        )
        self.anchor_index = _JoinIndex(
            [fit.other_position for fit in anchor_conditions], nulls_match=nulls_match
        )
        self.indexes.append(self.own_index)
        sides[self.anchor_topic].indexes.append(self.anchor_index)

    def add_entry(self, key: str, entry: _JoinEntry) -> None:
        """Store the entry of a SOW key."""
        self.entries[key] = entry
        for index in self.indexes:
            index.add(entry)

    def remove_entry(self, key: str, entry: _JoinEntry) -> None:
        """Remove the entry of a SOW key."""
        del self.entries[key]
        for index in self.indexes:
            index.remove(entry)

    def make_entry(self, record: Record) -> _JoinEntry:
        """Make the entry of a record."""
        values = self.extract(record.body)
        width = len(self.null_values)
        return _JoinEntry(
            values[:width], tuple([semantics.text(value) for value in values[width:]])
        )


class TopicJoin:
    """The rows of joined topics.

    Args:
        topics: the topics; each one but the first is joined to one before it.
        fields: the join conditions.
        nulls_match: NULL equals NULL (JoinNullEquivalency). A topic without a matching record still
            matches nothing.
    """

    def __init__(
        self, topics: Sequence[JoinedTopic], fields: Sequence[JoinedFields], *, nulls_match: bool
    ) -> None:
        field_positions: list[dict[Path, int]] = [{} for _ in topics]
        for condition in fields:
            for topic, field in (
                (condition.left_topic, condition.left_field),
                (condition.right_topic, condition.right_field),
            ):
                field_positions[topic].setdefault(field, len(field_positions[topic]))
        self._sides: Final = [
            _JoinSide(topic, tuple(own)) for topic, own in zip(topics, field_positions, strict=True)
        ]
        for index, side in enumerate(self._sides[1:], 1):
            conditions = [
                _JoinCondition(
                    field_positions[index][condition.right_field],
                    condition.left_topic,
                    field_positions[condition.left_topic][condition.left_field],
                )
                for condition in fields
                if condition.right_topic == index
            ]
            side.set_conditions(conditions, self._sides, nulls_match=nulls_match)

    def row_changes(self, index: int, change: RecordChange) -> Iterator[RowChange]:
        """See `RowSource.row_changes`; exhaust the iterator before the next change."""
        side = self._sides[index]
        old = side.entries.get(change.key)
        new = None if change.record is None else side.make_entry(change.record)
        if old is not None and new is not None and old.join_texts == new.join_texts:
            yield from self._changes_on_replace(index, old, new)
            old.values = new.values
            return
        if old is not None:
            yield from self._changes_on_remove(index, old)
            side.remove_entry(change.key, old)
        if new is not None:
            yield from self._changes_on_add(index, new)
            side.add_entry(change.key, new)

    def _changes_on_replace(
        self, index: int, old: _JoinEntry, new: _JoinEntry
    ) -> Iterator[RowChange]:
        """Yield the row changes of an entry that replaces one with the same texts."""
        for part in self._find_left_parts(index, old):
            for before in self._extend_right((*part, old)):
                after = (*part, new, *before[index + 1 :])
                yield self._make_row(before), self._make_row(after)

    def _changes_on_remove(self, index: int, old: _JoinEntry) -> Iterator[RowChange]:
        """Yield the row changes of a removed entry; NULLs replace the last matching entry."""
        for part in self._find_left_parts(index, old):
            for before in self._extend_right((*part, old)):
                yield self._make_row(before), None
            if index and not any(entry is not old for entry in self._find_matches(part)):
                for after in self._extend_right((*part, None)):
                    yield None, self._make_row(after)

    def _changes_on_add(self, index: int, new: _JoinEntry) -> Iterator[RowChange]:
        """Yield the row changes of an added entry; the first matching entry replaces NULLs."""
        for part in self._find_left_parts(index, new):
            if index and not self._find_matches(part):
                for before in self._extend_right((*part, None)):
                    yield self._make_row(before), None
            for after in self._extend_right((*part, new)):
                yield None, self._make_row(after)

    # ---- growing

    def _find_matches(self, part: _Part) -> Collection[_JoinEntry]:
        """Return the entries of the next topic that match a part of a row."""
        side = self._sides[len(part)]
        key: list[str | None] = []
        for condition in side.conditions:
            entry = part[condition.topic_position]
            if entry is None:
                return ()
            key.append(entry.join_texts[condition.other_position])
        return side.own_index.find(tuple(key))

    def _extend_right(self, part: _Part, length: int | None = None) -> Iterator[_Part]:
        """Yield all extensions of a part of a row to the right.

        Args:
            part: the part.
            length: the number of topics to extend it to; None for all.
        """
        if len(part) == (len(self._sides) if length is None else length):
            yield part
            return
        matches = self._find_matches(part)
        if not matches:
            yield from self._extend_right((*part, None), length)
        for entry in matches:
            yield from self._extend_right((*part, entry), length)

    def _find_left_parts(self, index: int, entry: _JoinEntry) -> Iterator[_Part]:
        """Yield the parts of rows that an entry matches, up to the topic before its own."""
        if index == 0:
            yield ()
            return
        side = self._sides[index]
        if not side.own_index.is_indexable(entry):
            return
        anchor_count = len(side.conditions) - len(side.other_conditions)
        key = tuple([entry.join_texts[fit.own_position] for fit in side.conditions[:anchor_count]])
        for anchor in side.anchor_index.find(key):
            for part in self._find_left_parts(side.anchor_topic, anchor):
                for extended in self._extend_right((*part, anchor), index):
                    if all(
                        _satisfies(entry, fit, extended[fit.topic_position])
                        for fit in side.other_conditions
                    ):
                        yield extended

    def _make_row(self, part: _Part) -> ProjectionRow:
        row: ProjectionRow = ()
        for side, entry in zip(self._sides, part, strict=True):
            row += side.null_values if entry is None else entry.values
        return row


def _satisfies(entry: _JoinEntry, condition: _JoinCondition, other: _JoinEntry | None) -> bool:
    return (
        other is not None
        and entry.join_texts[condition.own_position] == other.join_texts[condition.other_position]
    )
