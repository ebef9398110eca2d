"""A tolerant scanner for JSON that is malformed, or that the fast parsers refuse.

The scanner reads a body once, from the front, keeps the wanted members and skips the rest. It never
fails: where the body is malformed it stops and keeps the values found so far. Unlike the parsers it
accepts bytes that are no UTF-8, unpaired surrogates (read as U+FFFD), numbers of any size, NaN and
Infinity, and a byte order mark. It skips values nested deeper than `MAX_DEPTH`; time is
proportional to the length of the body.
"""

from __future__ import annotations

import re
from math import inf, nan
from typing import TYPE_CHECKING, TypeAlias

from server.message_types.path_tree import MAX_DEPTH
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.message_types.trees import Tree

MemberNames: TypeAlias = dict[str, "MemberNames"]
"""The members to keep, by name, each with the members to keep in it."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(rb"[ \t\r\n]*+(" + _STRING + rb'|[{}\[\],:]|[^ \t\r\n{}\[\],:"]++)', re.DOTALL)
_STRUCTURE = re.compile(_STRING + rb'|[{}\[\]"]', re.DOTALL)
_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u([0-9a-fA-F]{4})|\\(.)",
    re.DOTALL,
)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

_INTEGER = re.compile(rb"-?[0-9]{1,20}")
_NUMBER = re.compile(rb"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_MIN_INTEGER = -(2**63)
_MAX_INTEGER = 2**64 - 1
_WORDS: dict[bytes, bool | float | None] = {
    b"true": True,
    b"false": False,
    b"null": None,
    b"NaN": nan,
    b"Infinity": inf,
    b"-Infinity": -inf,
}


class _MalformedError(ValueError):
    """The scanner has reached bytes that are not JSON."""


class _ScanCompleteError(Exception):
    """Every wanted member has been read."""


def scan(body: bytes, names: MemberNames, *, first_wins: bool) -> Tree:
    """Read the wanted members of a body.

    Args:
        body: JSON, perhaps malformed.
        names: the members to keep.
        first_wins: of members with one name keep the first, and stop as soon as all are found;
            otherwise keep the last, and no member of a body that is malformed anywhere.

    Returns:
        The body with no members but the wanted ones.
    """
    scanner = _Scanner(body, first_wins=first_wins)
    try:
        scanner.run(names)
    except _ScanCompleteError:
        pass
    except _MalformedError:
        if not first_wins:
            return None
    return scanner.root


def split_members(text: bytes, *, first_wins: bool) -> dict[str, bytes] | None:
    """Split an object into names and texts of values; return None if it is no complete object.

    Accepts the same syntax as `scan`, and if the first of equal names counts, also a comma after
    the last member.
    """
    try:
        return _Scanner(text, first_wins=first_wins).split_members()
    except _MalformedError:
        return None


class _Scanner:
    """One pass over one body; `root` holds the values read so far."""

    def __init__(self, body: bytes, *, first_wins: bool) -> None:
        self._body = body
        self._first_wins = first_wins
        self._position = len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0
        self.root: Tree = None

    def run(self, names: MemberNames) -> None:
        """Read the whole body into `root`."""
        self._read_value(self._next_token(), names, 0, self._set_root)
        if self._body[self._position :].strip(_SPACE):
            raise _MalformedError

    def split_members(self) -> dict[str, bytes]:
        """Read the body's members as text, see `split_members`."""
        members: dict[str, bytes] = {}
        if self._next_token() != b"{":
            raise _MalformedError
        token = self._next_token()
        while token != b"}":
            if not token.startswith(b'"') or self._next_token() != b":":
                raise _MalformedError
            name = read_text(token)
            token = self._next_token()
            start = self._position - len(token)
            self._skip_value(token)
            if not (self._first_wins and name in members):
                members[name] = self._body[start : self._position]
            token = self._next_token()
            if token == b",":
                token = self._next_token()
                if token == b"}" and not self._first_wins:
                    raise _MalformedError
            elif token != b"}":
                raise _MalformedError
        if self._body[self._position :].strip(_SPACE):
            raise _MalformedError
        return members

    def _set_root(self, value: Tree) -> None:
        self.root = value

    def _read_value(
        self, token: bytes, names: MemberNames, depth: int, put: Callable[[Tree], None]
    ) -> None:
        """Read a value that begins with `token`.

        `put` gets a container before it is filled, so that it is kept if the body is truncated.
        """
        if token == b"{":
            members: dict[str, Tree] = {}
            put(members)
            if names and depth < MAX_DEPTH:
                self._read_members(members, names, depth)
            else:
                self._skip_value(token)
        elif token == b"[":
            elements: list[Tree] = []
            put(elements)
            if depth < MAX_DEPTH:
                self._read_elements(elements, names, depth)
            else:
                self._skip_value(token)
        else:
            put(read_scalar(token))

    def _read_members(self, members: dict[str, Tree], names: MemberNames, depth: int) -> None:
        token = self._next_token()
        while token != b"}":
            if not token.startswith(b'"') or self._next_token() != b":":
                raise _MalformedError
            name = read_text(token)
            token = self._next_token()
            if name in names and not (self._first_wins and name in members):
                self._read_member(members, name, token, names, depth)
            else:
                self._skip_value(token)
            token = self._next_after_comma(b"}")

    def _read_member(
        self, members: dict[str, Tree], name: str, token: bytes, names: MemberNames, depth: int
    ) -> None:
        def put(value: Tree) -> None:
            members[name] = value

        self._read_value(token, names[name], depth + 1, put)
        if self._first_wins and not depth and len(members) == len(names):
            raise _ScanCompleteError

    def _read_elements(self, elements: list[Tree], names: MemberNames, depth: int) -> None:
        token = self._next_token()
        while token != b"]":
            self._read_value(token, names, depth + 1, elements.append)
            token = self._next_after_comma(b"]")

    def _next_after_comma(self, end: bytes) -> bytes:
        """Read the comma after an element and return the next token, or the container's end."""
        token = self._next_token()
        if token == end:
            return token
        if token != b",":
            raise _MalformedError
        token = self._next_token()
        if token == end:
            raise _MalformedError
        return token

    def _skip_value(self, token: bytes) -> None:
        """Skip the value that begins with `token`; inspect only brackets and quotes."""
        if token not in (b"{", b"["):
            _check_scalar(token)
            return
        depth = 1
        for match in _STRUCTURE.finditer(self._body, self._position):
            symbol = match[0]
            if symbol in (b"{", b"["):
                depth += 1
            elif symbol in (b"}", b"]"):
                depth -= 1
                if not depth:
                    self._position = match.end()
                    return
            elif symbol == b'"':
                break
        raise _MalformedError

    def _next_token(self) -> bytes:
        match = _TOKEN.match(self._body, self._position)
        if match is None:
            raise _MalformedError
        self._position = match.end()
        return match[1]


def _check_scalar(token: bytes) -> None:
    if not token.startswith(b'"') and token not in _WORDS and not _NUMBER.fullmatch(token):
        raise _MalformedError


def read_scalar(token: bytes) -> bool | int | float | str | None:
    """Read a text, a number or a word."""
    if token.startswith(b'"'):
        return read_text(token)
    if token in _WORDS:
        return _WORDS[token]
    if _INTEGER.fullmatch(token) and _MIN_INTEGER <= int(token) <= _MAX_INTEGER:
        return int(token)
    if _NUMBER.fullmatch(token):
        return float(token)
    raise _MalformedError


def read_text(token: bytes) -> str:
    """Read a text, which is enclosed in its quotes."""
    text = bytes_to_text(token[1:-1])
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(escape: re.Match[str]) -> str:
    high, low, single, character = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if single:
        code = int(single, 16)
        return chr(0xFFFD if 0xD800 <= code <= 0xDFFF else code)
    return _ESCAPED.get(character, character)
