"""The message type `struct`: bodies with the layout of a C struct, defined by the configuration.

Each `<Field>` is `/name = [order][count]code`, in the order of the body, without alignment; codes
and orders are those of Python's `struct` module, as far as `_CODES` has them (AMPS User Guide,
Struct Message Types). An extractor treats the fields that it does not read as padding, so that a
single `unpack_from` reads all its fields, or two if the configuration mixes byte orders.

Several fields of one name are an array, as everywhere in AMPS (AMPS User Guide, Compound Types).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from server.message_types.base import Capabilities, MessageTypeError
from server.message_types.literal import LiteralType
from server.message_types.paths import PathError, format_path, parse_path
from server.message_types.trees import read_path
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.message_types.base import Extractor, Value
    from server.message_types.options import MessageTypeOptions
    from server.message_types.paths import Path
    from server.message_types.registry import Find
    from server.message_types.trees import Tree

    Reader = Callable[[bytes], Sequence[Value]]


def _until_null(data: bytes) -> str:
    return bytes_to_text(data.partition(b"\0")[0])


@dataclass(frozen=True, slots=True)
class _Code:
    """The meaning of a data type specifier.

    Attributes:
        letter: the code of Python's `struct` for it in standard sizes.
        takes_length: a number of bytes may be given.
        default_length: the number of bytes if none is given, None if it is required.
        convert: converts the bytes to text, None for numbers.
    """

    letter: str
    takes_length: bool = False
    default_length: int | None = 1
    convert: Callable[[bytes], str] | None = None


_CODES = {
    **{letter: _Code(letter) for letter in "bB?hHiIlLqQfd"},
    "n": _Code("q"),
    "N": _Code("Q"),
    "x": _Code("x", takes_length=True, default_length=None),
    "c": _Code("s", takes_length=True, convert=bytes_to_text),
    "s": _Code("s", takes_length=True, default_length=None, convert=bytes_to_text),
    "S": _Code("s", takes_length=True, default_length=None, convert=_until_null),
    "p": _Code("p", takes_length=True, default_length=None, convert=bytes_to_text),
}
_ORDERS = {"": "<", "@": "<", "=": "<", "<": "<", ">": ">"}
_FORMAT = re.compile(r"([@=<>]?)\s*([0-9]{0,9})([A-Za-z?])")
_EXPECTED = "expected /name = [order][count]code, such as /price = d or /symbol = 16s"


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of the struct: its offset and its format for reading it alone."""

    path: Path
    offset: int
    order: str
    format: str
    convert: Callable[[bytes], str] | None

    @property
    def end(self) -> int:
        return self.offset + struct.calcsize(self.order + self.format)

    def read(self, body: bytes) -> Value:
        """Read this field; return None if the body ends before the field does."""
        if self.end > len(body):
            return None
        value = struct.unpack_from(self.order + self.format, body, self.offset)[0]
        return self.convert(value) if self.convert else cast("Value", value)


class StructType(LiteralType):
    """`struct`.

    Options:
        Field: repeatable, at least one.
    """

    capabilities = Capabilities(delta=False, build=False, select=False)

    def __init__(self, name: str, options: MessageTypeOptions, _find: Find) -> None:
        self._members = _members(options.texts("Field"))
        options.refuse_unknown()
        self.name = name

    def tree(self, body: bytes) -> Tree:
        """Return the whole body, decoded; fields that a short body lacks are NULL."""
        read = _reader(self._members)
        named = zip(self._members, read(body), strict=True)
        return {format_path(member.path): cast("Tree", value) for member, value in named}

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        wanted = [
            member
            for member in self._members
            if any(path[: len(member.path)] == member.path for path in paths)
        ]
        read = _reader(wanted)
        locations = [_locate(wanted, path) for path in paths]
        if len(locations) > 1 and all(
            len(indexes) == 1 and not rest for indexes, rest in locations
        ):
            pick = itemgetter(*(indexes[0] for indexes, _ in locations))
            return lambda body: pick(read(body))

        def extract(body: bytes) -> tuple[Value, ...]:
            values = read(body)
            return tuple(
                _gather([values[index] for index in indexes], rest) for indexes, rest in locations
            )

        return extract


def _members(texts: Sequence[str]) -> tuple[_Member, ...]:
    """Compute the layout of the fields of a configuration; padding is left out."""
    if not texts:
        raise MessageTypeError("Field", f"at least one is required, {_EXPECTED}")
    members = []
    offset = 0
    for text in texts:
        member = _member(text, offset)
        offset = member.end
        if not member.format.endswith("x"):
            members.append(member)
    return tuple(members)


def _member(text: str, offset: int) -> _Member:
    name, equals, specifier = text.partition("=")
    match = _FORMAT.fullmatch(specifier.strip())
    if not equals or not match:
        raise MessageTypeError("Field", f"{text.strip()!r}: {_EXPECTED}")
    order, count, letter = match.groups()
    try:
        path = parse_path(name.strip())
    except PathError as error:
        raise MessageTypeError("Field", f"{text.strip()!r}: {error.message}") from None
    code = _CODES.get(letter)
    if code is None:
        codes = " ".join(_CODES)
        raise MessageTypeError(
            "Field", f"{text.strip()!r}: unknown type {letter!r}, expected one of {codes}"
        )
    size = int(count) if count else code.default_length
    if size is None or size == 0:
        raise MessageTypeError(
            "Field", f"{text.strip()!r}: {letter} needs a number of bytes, such as 16{letter}"
        )
    if size > 1 and not code.takes_length:
        raise MessageTypeError(
            "Field", f"{text.strip()!r}: {letter} is one value, write a Field for each"
        )
    return _Member(path, offset, _ORDERS[order], f"{size}{code.letter}", code.convert)


def _reader(members: Sequence[_Member]) -> Reader:
    """Make a function that reads these fields, in their order."""
    orders = sorted({member.order for member in members})
    by_order = [[member for member in members if member.order == order] for order in orders]
    unpackers = [struct.Struct(_layout(group)).unpack_from for group in by_order]
    read_order = [member for group in by_order for member in group]
    positions = [read_order.index(member) for member in members]
    texts = [(index, member.convert) for index, member in enumerate(members) if member.convert]

    def read(body: bytes) -> Sequence[Value]:
        try:
            values = [value for unpack in unpackers for value in unpack(body)]
        except struct.error:  # the body is too short for some of them
            return [member.read(body) for member in members]
        if len(unpackers) > 1:
            values = [values[position] for position in positions]
        for index, convert in texts:
            values[index] = convert(values[index])
        return values

    return read


def _layout(members: Sequence[_Member]) -> str:
    """Return the `struct` format that reads these fields of one byte order and skips all others."""
    parts = []
    offset = 0
    for member in members:
        parts.append(f"{member.offset - offset}x{member.format}")
        offset = member.end
    return members[0].order + "".join(parts)


def _locate(members: Sequence[_Member], path: Path) -> tuple[list[int], Path]:
    """Return the fields that a path names, and the subscripts that follow the name."""
    for length in range(len(path), 0, -1):
        indexes = [index for index, member in enumerate(members) if member.path == path[:length]]
        if indexes:
            return indexes, path[length:]
    return [], ()


def _gather(values: list[Value], rest: Path) -> Value:
    tree: Tree = cast("Tree", values)
    if len(values) == 1:
        tree = cast("Tree", values[0])
    return read_path(tree, rest)
