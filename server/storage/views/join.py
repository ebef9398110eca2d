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
    """Two fields that must have equal values; `left` belongs to the earlier topic.

    Attributes:
        left_topic: the place of the topic of `left`.
        left: a field.
        right_topic: the place of the topic of `right`.
        right: a field.
    """

    left_topic: int
    left: Path
    right_topic: int
    right: Path


class _JoinEntry:
    """The stored data of a record.

    Attributes:
        values: its part of a row.
        texts: the text values of its topic's joined fields.
    """

    __slots__ = ("texts", "values")

    def __init__(self, values: ProjectionRow, texts: JoinTexts) -> None:
        self.values = values
        self.texts = texts


_Part: TypeAlias = "tuple[_JoinEntry | None, ...]"
"""A row as far as it has grown: an entry of each topic, None where no record matches."""


class _JoinIndex:
    """Finds entries by their texts at some places.

    Args:
        places: the places of the texts that form a key.
        nulls_match: entries with NULL are indexed as well.
    """

    __slots__ = ("_found", "_nulls_match", "_places")

    def __init__(self, places: Sequence[int], *, nulls_match: bool) -> None:
        self._places = tuple(places)
        self._nulls_match = nulls_match
        self._found: dict[JoinTexts, _JoinEntry | dict[_JoinEntry, None]] = {}

    def add(self, entry: _JoinEntry) -> None:
        """Add an entry."""
        key = self._key(entry)
        if key is None:
            return
        found = self._found.get(key)
        if found is None:
            self._found[key] = entry
        elif isinstance(found, dict):
            found[entry] = None
        else:
            self._found[key] = {found: None, entry: None}

    def remove(self, entry: _JoinEntry) -> None:
        """Remove an entry."""
        key = self._key(entry)
        if key is None:
            return
        found = self._found[key]
        if isinstance(found, dict) and len(found) > 1:
            del found[entry]
        else:
            del self._found[key]

    def takes(self, entry: _JoinEntry) -> bool:
        """Return True if an entry is indexed at all."""
        return self._key(entry) is not None

    def find(self, key: JoinTexts) -> Collection[_JoinEntry]:
        """Return the entries of a key, oldest first."""
        found = self._found.get(key, ())
        return (found,) if isinstance(found, _JoinEntry) else found

    def _key(self, entry: _JoinEntry) -> JoinTexts | None:
        key = tuple([entry.texts[place] for place in self._places])
        return None if None in key and not self._nulls_match else key


class _JoinCondition(NamedTuple):
    """A join condition: a text of a topic's entry equals one of an entry further to the left.

    Attributes:
        own: the place of the text in the entry.
        topic: the other topic.
        other: the place of the text in its entry.
    """

    own: int
    topic: int
    other: int


class _JoinSide:
    """One topic of the chain, with its join conditions to topics on its left.

    Attributes:
        extract: reads the values and the joined fields of a record.
        entries: the entries of its records, by SOW key.
        fits: its join conditions; empty for the first topic.
        by_own: its entries by the texts that `fits` compares.
        anchor: the topic with the entries that lead to the rows on the left.
        by_anchor: the entries of that topic, by the texts that `fits` compares with it.
        others: the conditions of `fits` that concern further topics.
        nothing: the values in place of a missing record.
    """

    def __init__(self, topic: JoinedTopic, fields: Sequence[Path]) -> None:
        self.extract: Final = topic.message_type.extractor([*topic.inputs, *fields])
        self.nothing: Final[ProjectionRow] = (None,) * len(topic.inputs)
        self.entries: dict[str, _JoinEntry] = {}
        self.indexes: list[_JoinIndex] = []
        self.fits: list[_JoinCondition] = []
        self.anchor = 0
        self.others: list[_JoinCondition] = []
        self.by_own: _JoinIndex
        self.by_anchor: _JoinIndex

    def join(
        self, fits: Sequence[_JoinCondition], sides: Sequence[_JoinSide], *, nulls_match: bool
    ) -> None:
        """Join the topic to those on its left; called once, for all topics but the first."""
        self.fits = list(fits)
        self.anchor = fits[0].topic
        near = [fit for fit in fits if fit.topic == self.anchor]
        self.fits = near + [fit for fit in fits if fit.topic != self.anchor]
        self.others = self.fits[len(near) :]
        self.by_own = _JoinIndex([fit.own for fit in self.fits], nulls_match=nulls_match)
        self.by_anchor = _JoinIndex([fit.other for fit in near], nulls_match=nulls_match)
        self.indexes.append(self.by_own)
        sides[self.anchor].indexes.append(self.by_anchor)

    def keep(self, key: str, entry: _JoinEntry) -> None:
        """Store the entry of a SOW key."""
        self.entries[key] = entry
        for index in self.indexes:
            index.add(entry)

    def forget(self, key: str, entry: _JoinEntry) -> None:
        """Remove the entry of a SOW key."""
        del self.entries[key]
        for index in self.indexes:
            index.remove(entry)

    def read(self, record: Record) -> _JoinEntry:
        """Make the entry of a record."""
        values = self.extract(record.body)
        width = len(self.nothing)
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
        joined: list[dict[Path, int]] = [{} for _ in topics]
        for one in fields:
            for topic, field in ((one.left_topic, one.left), (one.right_topic, one.right)):
                joined[topic].setdefault(field, len(joined[topic]))
        self._sides: Final = [
            _JoinSide(topic, tuple(own)) for topic, own in zip(topics, joined, strict=True)
        ]
        for place, side in enumerate(self._sides[1:], 1):
            fits = [
                _JoinCondition(
                    joined[place][one.right], one.left_topic, joined[one.left_topic][one.left]
                )
                for one in fields
                if one.right_topic == place
            ]
            side.join(fits, self._sides, nulls_match=nulls_match)

    def changes(self, place: int, change: RecordChange) -> Iterator[RowChange]:
        """See `RowSource.changes`; exhaust the iterator before the next change."""
        side = self._sides[place]
        old = side.entries.get(change.key)
        new = None if change.record is None else side.read(change.record)
        if old is not None and new is not None and old.texts == new.texts:
            yield from self._replaced(place, old, new)
            old.values = new.values
            return
        if old is not None:
            yield from self._removed(place, old)
            side.forget(change.key, old)
        if new is not None:
            yield from self._added(place, new)
            side.keep(change.key, new)

    def _replaced(self, place: int, old: _JoinEntry, new: _JoinEntry) -> Iterator[RowChange]:
        """Yield the row changes of an entry that replaces one with the same texts."""
        for part in self._parts_left_of(place, old):
            for before in self._grown((*part, old)):
                after = (*part, new, *before[place + 1 :])
                yield self._row(before), self._row(after)

    def _removed(self, place: int, old: _JoinEntry) -> Iterator[RowChange]:
        """Yield the row changes of a removed entry; NULLs replace the last matching entry."""
        for part in self._parts_left_of(place, old):
            for before in self._grown((*part, old)):
                yield self._row(before), None
            if place and not any(entry is not old for entry in self._fitting(part)):
                for after in self._grown((*part, None)):
                    yield None, self._row(after)

    def _added(self, place: int, new: _JoinEntry) -> Iterator[RowChange]:
        """Yield the row changes of an added entry; the first matching entry replaces NULLs."""
        for part in self._parts_left_of(place, new):
            if place and not self._fitting(part):
                for before in self._grown((*part, None)):
                    yield self._row(before), None
            for after in self._grown((*part, new)):
                yield None, self._row(after)

    # ---- growing

    def _fitting(self, part: _Part) -> Collection[_JoinEntry]:
        """Return the entries of the next topic that match a part of a row."""
        side = self._sides[len(part)]
        key: list[str | None] = []
        for fit in side.fits:
            entry = part[fit.topic]
            if entry is None:
                return ()
            key.append(entry.texts[fit.other])
        return side.by_own.find(tuple(key))

    def _grown(self, part: _Part, length: int | None = None) -> Iterator[_Part]:
        """Yield all extensions of a part of a row to the right.

        Args:
            part: the part.
            length: the number of topics to extend it to; None for all.
        """
        if len(part) == (len(self._sides) if length is None else length):
            yield part
            return
        fitting = self._fitting(part)
        if not fitting:
            yield from self._grown((*part, None), length)
        for entry in fitting:
            yield from self._grown((*part, entry), length)

    def _parts_left_of(self, place: int, entry: _JoinEntry) -> Iterator[_Part]:
        """Yield the parts of rows that an entry matches, up to the topic before its own."""
        if place == 0:
            yield ()
            return
        side = self._sides[place]
        if not side.by_own.takes(entry):
            return
        near = len(side.fits) - len(side.others)
        key = tuple([entry.texts[fit.own] for fit in side.fits[:near]])
        for anchor in side.by_anchor.find(key):
            for part in self._parts_left_of(side.anchor, anchor):
                for grown in self._grown((*part, anchor), place):
                    if all(_fits(entry, fit, grown[fit.topic]) for fit in side.others):
                        yield grown

    def _row(self, part: _Part) -> ProjectionRow:
        row: ProjectionRow = ()
        for side, entry in zip(self._sides, part, strict=True):
            row += side.nothing if entry is None else entry.values
        return row


def _fits(entry: _JoinEntry, fit: _JoinCondition, other: _JoinEntry | None) -> bool:
    return other is not None and entry.texts[fit.own] == other.texts[fit.other]
