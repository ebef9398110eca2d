"""Finds the positions of keys and tables in a TOML document, for error messages and edits.

`tomllib` returns values and no positions. This module finds positions, and no values: it is for a
document that `tomllib` has read, so it need not handle syntax errors.

    [users.ann]              the table ("users", "ann"), in line 1
    topic = [                the key ("users", "ann", "topic"), in line 2
        { read = true },     the key ("users", "ann", "topic", 0, "read"), in line 3
    ]

Source: TOML v1.0.0.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

TomlPath: TypeAlias = tuple[str | int, ...]
"""Names of tables and keys, and the numbers of the elements of arrays from 0 on."""

_TOKEN: Final = re.compile(
    r"""
    (?P<blank> [ \t\r]+ | \#[^\n]* )
  | (?P<line> \n )
  | (?P<string>
        \"\"\" (?: \\[\s\S] | [^\\] )*? \"\"\" "{0,2}
      | ''' [\s\S]*? ''' '{0,2}
      | " (?: \\. | [^"\\\n] )* "
      | ' [^'\n]* '
    )
  | (?P<mark> [\[\]{}=,.] )
  | (?P<bare> [^\s\[\]{}=,.\#"']+ )
    """,
    re.VERBOSE,
)
_ENDS_OF_VALUES: Final = (",", "]", "}")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class TomlTable(NamedTuple):
    """A table with a header.

    Attributes:
        key_path: its names.
        start: the offset in the text of the beginning of its header.
        end: the offset of the end of its header's line.
    """

    key_path: TomlPath
    start: int
    end: int


@dataclass(slots=True)
class TomlSourceMap:
    """The positions of the tables and keys of a document.

    Attributes:
        tables: the tables that have headers, in their order.
        values: the start and end offset of the value of each key.
    """

    tables: list[TomlTable] = field(default_factory=list)
    values: dict[TomlPath, tuple[int, int]] = field(default_factory=dict)
    _lines: dict[TomlPath, int] = field(default_factory=dict)

    def line_of(self, key_path: TomlPath) -> int:
        """Return the line of a key or table, from 1 on; if it is not written, of its parent."""
        while key_path and key_path not in self._lines:
            key_path = key_path[:-1]
        return self._lines.get(key_path, 1)

    def record_line(self, key_path: TomlPath, line: int) -> None:
        """Record the line of a key path, and of its parents if they have none yet."""
        for size in range(1, len(key_path) + 1):
            self._lines.setdefault(key_path[:size], line)


def make_source_map(text: str) -> TomlSourceMap:
    """Find the positions of the tables and keys of a document.

    Args:
        text: a document that `tomllib` can read.
    """
    return _TomlScanner(text).scan()


class _TomlScanner:
    """Scans a document.

    Args:
        text: the document.
    """

    def __init__(self, text: str) -> None:
        self._source_map = TomlSourceMap()
        self._newlines = [found.start() for found in re.finditer("\n", text)]
        self._tokens = [
            _Token(str(found.lastgroup), found[0], found.start(), found.end())
            for found in _TOKEN.finditer(text)
            if found.lastgroup != "blank"
        ]
        self._tokens.append(_Token("end", "", len(text), len(text)))
        self._index = 0
        self._element_counts: dict[TomlPath, int] = {}  # of the tables in arrays of tables

    def scan(self) -> TomlSourceMap:
        """Find the positions."""
        table: TomlPath = ()
        while self._token.kind != "end":
            if self._token.kind == "line":
                self._index += 1
            elif self._token.text == "[":
                table = self._read_header()
            else:
                self._read_pair(table)
        return self._source_map

    @property
    def _token(self) -> _Token:
        return self._tokens[self._index]

    def _advance(self) -> _Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _line_of(self, token: _Token) -> int:
        return bisect_right(self._newlines, token.start) + 1

    def _read_header(self) -> TomlPath:
        start = self._advance()
        is_array = self._token.text == "["
        if is_array:
            self._advance()
        names = self._read_key("]")
        self._index += 2 if is_array else 1
        key_path: TomlPath = ()
        for name in names[:-1]:
            key_path = self._last_element((*key_path, name))
        key_path = (*key_path, names[-1])
        if is_array:
            self._element_counts[key_path] = self._element_counts.get(key_path, 0) + 1
            key_path = self._last_element(key_path)
        self._source_map.record_line(key_path, self._line_of(start))
        self._source_map.tables.append(TomlTable(key_path, start.start, self._token.start))
        return key_path

    def _last_element(self, key_path: TomlPath) -> TomlPath:
        """Return the table that a name stands for: of an array of tables the last one."""
        count = self._element_counts.get(key_path)
        return key_path if count is None else (*key_path, count - 1)

    def _read_key(self, end: str) -> list[str]:
        """Read the parts of a key up to the token that ends it, and return them."""
        names = []
        while self._token.text != end:
            token = self._advance()
            if token.kind == "string":
                names.append(tomllib.loads(f"name = {token.text}")["name"])
            elif token.kind == "bare":
                names.append(token.text)
        return names

    def _read_pair(self, table: TomlPath) -> None:
        first = self._token
        key_path = (*table, *self._read_key("="))
        self._advance()
        self._source_map.record_line(key_path, self._line_of(first))
        self._read_value(key_path)

    def _read_value(self, key_path: TomlPath) -> None:
        start = self._token.start
        self._source_map.record_line(key_path, self._line_of(self._token))
        if self._token.text == "[":
            self._read_array(key_path)
        elif self._token.text == "{":
            self._read_inline_table(key_path)
        else:
            while self._token.kind not in ("line", "end") and not self._is_at(*_ENDS_OF_VALUES):
                self._advance()
        self._source_map.values[key_path] = (start, self._tokens[self._index - 1].end)

    def _is_at(self, *marks: str) -> bool:
        return self._token.text in marks

    def _read_array(self, key_path: TomlPath) -> None:
        self._advance()
        number = 0
        while True:
            while self._token.kind == "line" or self._is_at(","):
                self._advance()
            if self._is_at("]"):
                break
            self._read_value((*key_path, number))
            number += 1
        self._advance()

    def _read_inline_table(self, key_path: TomlPath) -> None:
        self._advance()
        while not self._is_at("}"):
            if self._is_at(","):
                self._advance()
            self._read_pair(key_path)
        self._advance()
