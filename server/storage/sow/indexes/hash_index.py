"""Hash indexes: find the records with given values in given fields.

An index returns a superset: the caller tests the whole filter on the candidates. It is only
queried for texts. Since a text and a number compare as numbers, a number is indexed as such, and a
text that is a number finds both. Values that may equal a text in yet other ways (arrays, numbers
beyond the exact range of a double) are *odd*, and always among the candidates.

Source: AMPS User Guide, Indexing SOW Topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

from server.expressions.numerals import numeral
from server.expressions.semantics import EXACT_LIMIT
from server.expressions.tree import Comparison, Expr, Identifier, In, Literal, conjuncts
from server.message_types.base import Extractor, MessageType, Value
from server.message_types.bulk import bulk_extractor
from server.message_types.paths import Path
from server.util.string_table import StringTable

IndexValue: TypeAlias = str | int | float
ProbeTexts: TypeAlias = tuple[tuple[str, ...], ...]
"""For each field of an index, the texts that it may have."""

_IndexKey: TypeAlias = IndexValue | tuple[IndexValue, ...]
"""The index key of rows: the value of the field, or of several fields all values."""

_PLAIN: Final = 0
_ODD: Final = 1
_NULL: Final = 2  # equals no text, whatever the other fields hold

_MAX_EXACT: Final = 2**63
"""Integers below this in magnitude equal no other integer."""

MAX_COMBINATIONS: Final = 10_000
"""Maximum number of look-ups per query; more are not worth it."""


class HashIndex:
    """One index.

    Args:
        fields: its fields.
        message_type: the topic's message type.
    """

    def __init__(self, fields: Sequence[Path], message_type: MessageType) -> None:
        self.fields: Final = tuple(fields)
        self._extract: Final[Extractor] = message_type.extractor(fields)
        self._extract_all: Final = bulk_extractor(message_type, fields)
        self._is_single: Final = len(self.fields) == 1
        self._rows_by_key: StringTable[int | set[int]] = StringTable()
        self._key_by_row: list[_IndexKey | None] = []  # by rows
        self._odd_rows: set[int] = set()

    def index_row(self, row: int, body: bytes) -> None:
        """Index a row under the values of its body."""
        values = self._extract(body)
        self._index_values(
            row, values[0] if self._is_single else values, max(map(_value_class, values))
        )

    def index_rows(self, rows: Sequence[int], bodies: Sequence[bytes]) -> None:
        """Index rows, at least one, under the values of their bodies."""
        columns = self._extract_all(bodies)
        if self._is_single:
            self._rows_by_key.expect(columns[0])
            for row, value in zip(rows, columns[0], strict=True):
                self._index_values(row, value, _value_class(value))
        else:
            for row, values in zip(rows, zip(*columns, strict=True), strict=True):
                self._index_values(row, values, max(map(_value_class, values)))

    def _index_values(self, row: int, values: Value | tuple[Value, ...], value_class: int) -> None:
        key_by_row = self._key_by_row
        while row >= len(key_by_row):
            key_by_row.append(None)
        previous_key = key_by_row[row]
        if previous_key is not None:
            if previous_key == values:
                return
            self.remove(row)
        elif self._odd_rows:
            self._odd_rows.discard(row)
        if value_class == _ODD:
            self._odd_rows.add(row)
        if value_class != _PLAIN:
            return
        key: _IndexKey = values  # type: ignore[assignment]  # neither NULL nor odd
        key_by_row[row] = key
        rows = self._rows_by_key.get(key)
        if rows is None:
            self._rows_by_key[key] = row
        elif isinstance(rows, set):
            rows.add(row)
        elif rows != row:
            self._rows_by_key[key] = {rows, row}

    def remove(self, row: int) -> None:
        """Remove a row."""
        self._odd_rows.discard(row)
        key = self._key_by_row[row] if row < len(self._key_by_row) else None
        if key is None:
            return
        self._key_by_row[row] = None
        rows = self._rows_by_key[key]
        if isinstance(rows, set):
            rows.discard(row)
            if len(rows) > 1:
                return
            if rows:
                self._rows_by_key[key] = rows.pop()
                return
        del self._rows_by_key[key]

    def find_candidates(self, probe_texts: ProbeTexts) -> list[int]:
        """Return the rows that may have one of the texts in each field, in ascending order."""
        return ascending_rows(self.find_row_sets(probe_texts))

    def find_row_sets(self, probe_texts: ProbeTexts) -> Sequence[Collection[int]]:
        """Return the rows of `find_candidates` as they are kept, which is faster to count."""
        found: list[Collection[int]] = [self._odd_rows] if self._odd_rows else []
        for values in product(*map(_alternatives, probe_texts)):
            rows = self._rows_by_key.get(values[0] if self._is_single else values)
            if rows is not None:
                found.append(rows if isinstance(rows, set) else (rows,))
        return found


def ascending_rows(row_sets: Sequence[Collection[int]]) -> list[int]:
    """Return the rows of several sets, each once, in ascending order."""
    return sorted(row_sets[0] if len(row_sets) == 1 else set().union(*row_sets))


def _value_class(value: Value) -> int:
    """Return how a value is indexed: as it is, as odd, or as NULL."""
    if isinstance(value, str):
        return _PLAIN if value else _NULL
    if value is None:
        return _NULL
    return _ODD if isinstance(value, list) or not abs(value) < EXACT_LIMIT else _PLAIN


def _alternatives(texts: Iterable[str]) -> list[IndexValue]:
    values: list[IndexValue] = []
    for text in texts:
        values.append(text)
        number = numeral(text)
        if number is not None:
            values.append(number)
    return values


def key_texts(probe_texts: ProbeTexts) -> ProbeTexts | None:
    """Return the texts of key fields from which keys may have been made, for values equal to these.

    A number is equal to any text that represents it, but a key was made only from one of its own.

    Returns:
        For each field the texts; None if one of these represents a number that equals very many
        others.
    """
    spellings = [texts for texts in map(_spellings, probe_texts) if texts is not None]
    return tuple(spellings) if len(spellings) == len(probe_texts) else None


def _spellings(texts: Iterable[str]) -> tuple[str, ...] | None:
    spellings: dict[str, None] = {}
    for text in texts:
        spellings[text] = None
        number = numeral(text)
        if number is None:
            continue
        if abs(number) >= (_MAX_EXACT if isinstance(number, int) else EXACT_LIMIT):
            return None
        spellings[repr(float(number))] = None
        if float(number).is_integer():
            spellings[str(int(number))] = None
        if number == 0:
            spellings["0.0"] = spellings["-0.0"] = None
    return tuple(spellings)


def texts_by_field(expr: Expr) -> Mapping[Path, tuple[str, ...]]:
    """Return the fields that a filter restricts to some texts, by `=` or `IN`; none equals `''`."""
    restricted: dict[Path, tuple[str, ...]] = {}
    for term in conjuncts(expr):
        field, items = _restriction(term)
        if field is None:
            continue
        texts = [
            item.value
            for item in items
            if isinstance(item, Literal) and isinstance(item.value, str)
        ]
        if texts and len(texts) == len(items):
            restricted.setdefault(field.path, tuple(text for text in texts if text))
    return restricted


def _restriction(term: Expr) -> tuple[Identifier | None, tuple[Expr, ...]]:
    match term:
        case Comparison(operator="=", left=Identifier() as field, right=other):
            return field, (other,)
        case Comparison(operator="=", left=other, right=Identifier() as field):
            return field, (other,)
        case In(operand=Identifier() as field, items=items):
            return field, items
        case _:
            return None, ()


def make_probe_texts(
    fields: Sequence[Path], restricted: Mapping[Path, tuple[str, ...]]
) -> ProbeTexts | None:
    """Return the texts that a filter allows in an index's fields.

    None if it leaves a field open, or there are more than `MAX_COMBINATIONS`.
    """
    probe_texts = []
    combinations = 1
    for field in fields:
        texts = restricted.get(field)
        if texts is None:
            return None
        probe_texts.append(texts)
        combinations *= len(texts)
    return tuple(probe_texts) if probe_texts and combinations <= MAX_COMBINATIONS else None
