"""The message types `fix` and `nvfix`: `tag=value` fields, each followed by a separator.

The two differ in the tags that publishers use, numbers or names; reading and writing are the same
(AMPS User Guide, Default Message Types). Tags have no structure, so a path of several steps is the
tag with a slash between them, as in `bflat`. A tag that occurs more than once is an array. All
values are text; expressions read a text that is a number as one (see `expressions.inference`). An
empty value is NULL.

A rebuilt body consists of whole fields with unchanged values. In a merged body the delta's fields
come first, in the delta's order, then the stored ones that the delta lacks, in theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from server.message_types.base import Capabilities, MessageTypeError
from server.message_types.number_text import double_text
from server.util.encoding import bytes_to_text, text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from server.message_types.base import Extractor, FieldValue, Value
    from server.message_types.options import MessageTypeOptions
    from server.message_types.paths import Path
    from server.message_types.registry import Find
    from server.message_types.select_list import FieldSelection

    Fields: TypeAlias = dict[bytes, list[bytes]]
    """Tag -> its values, in the order of the body; a tag has the place of its first occurrence."""

_SOH = 1
_MAX_SEPARATOR = 127
_MORE_SEPARATORS = ("HeaderSeparator", "MessageSeparator")


class FixType:
    """`fix` and `nvfix`, with the options `FieldSeparator`, `HeaderSeparator`, `MessageSeparator`.

    A header separator and a message separator, if configured, end a field just as the field
    separator does: header and body are one set of fields.
    """

    capabilities = Capabilities(typed=False)

    def __init__(self, name: str, options: MessageTypeOptions, _find: Find) -> None:
        separator = _separator(options, "FieldSeparator")
        self._separator = bytes([_SOH if separator is None else separator])
        others = [_separator(options, option) for option in _MORE_SEPARATORS]
        self._other_separators = bytes([other for other in others if other is not None])
        self._separator_table = bytes.maketrans(
            self._other_separators, self._separator * len(self._other_separators)
        )
        options.refuse_unknown()
        self.name = name

    @property
    def separator(self) -> int:
        """The byte that ends a field."""
        return self._separator[0]

    @property
    def separators(self) -> bytes:
        """All bytes that end a field."""
        return self._separator + self._other_separators

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a reader of `paths`, see `MessageType.extractor`."""
        separator = self._separator.decode()
        needles = [f"{separator}{_tag_text(path)}=" for path in paths]
        subscripts = [_subscript(path) for path in paths]
        plain = not any(subscripts)
        translated = self.normalize_separators if self._other_separators else None

        def extract(body: bytes) -> tuple[Value, ...]:
            if translated is not None:
                body = translated(body)
            text = separator + body.decode("utf-8", "surrogateescape")
            values: list[Value] = []
            for needle in needles:
                remainder = text.partition(needle)[2]
                value = remainder.partition(separator)[0]
                if needle in remainder:
                    values.append(array_of(remainder, needle))
                else:
                    values.append(value or None)
            return tuple(values) if plain else tuple(map(_element, values, subscripts))

        def array_of(remainder: str, needle: str) -> Value:
            return [part.partition(separator)[0] or None for part in remainder.split(needle)]

        return extract

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, see `MessageType.build`."""
        return self._render(self._encoded(fields), last_separator=True)

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta, see `MessageType.merge`."""
        changes = self._parse(delta)
        merged = {tag: values for tag, values in changes.items() if nulls or any(values)}
        for tag, values in self._parse(stored).items():
            merged.setdefault(tag, values)
        return self._render(merged, last_separator=self._ends_with_separator(stored))

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the difference for delta subscribers, see `MessageType.differ`."""
        before = self._parse(previous)
        kept_tags = {_tag(path) for path in keep}
        difference = {
            tag: values
            for tag, values in self._parse(current).items()
            if tag in kept_tags or values != before.get(tag)
        }
        if difference.keys() <= kept_tags:
            return None
        return self._render(difference, last_separator=self._ends_with_separator(current))

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Apply a select list, see `MessageType.select`."""
        selected = {
            tag: values
            for tag, values in self._parse(body).items()
            if selection.includes(tuple(bytes_to_text(tag).split("/")))
        }
        return self._render(selected, last_separator=self._ends_with_separator(body))

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields, see `MessageType.update`."""
        updated = {**self._parse(body), **self._encoded(fields)}
        return self._render(updated, last_separator=self._ends_with_separator(body))

    def _parse(self, body: bytes) -> Fields:
        """Parse a body into its fields; parts that are no `tag=value` are left out."""
        fields: Fields = {}
        for text in self.normalize_separators(body).split(self._separator):
            tag, separator, value = text.partition(b"=")
            if not separator:
                continue
            if tag in fields:
                fields[tag].append(value)
            else:
                fields[tag] = [value]
        return fields

    def _render(self, fields: Fields, *, last_separator: bool) -> bytes:
        texts = [tag + b"=" + value for tag, values in fields.items() for value in values]
        if last_separator:
            texts.append(b"")
        return self._separator.join(texts)

    def _encoded(self, fields: Iterable[FieldValue]) -> Fields:
        return {_tag(path): self._encode_value(value) for path, value in fields}

    def _encode_value(self, value: Value) -> list[bytes]:
        """Write a value; a separator in a text would begin another field and becomes a space."""
        if isinstance(value, list):
            return [text for element in value for text in self._encode_value(element)]
        return [self.normalize_separators(_text(value)).replace(self._separator, b" ")]

    def normalize_separators(self, body: bytes) -> bytes:
        """Return a body, or several, with all other separators replaced by the field separator."""
        return body.translate(self._separator_table) if self._other_separators else body

    def _ends_with_separator(self, body: bytes) -> bool:
        return not body or body[-1:] in (self._separator, *self._other_separators)


def _separator(options: MessageTypeOptions, name: str) -> int | None:
    text = options.text(name)
    if text is None:
        return None
    code = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= code <= _MAX_SEPARATOR or code == ord("="):
        raise MessageTypeError(
            name, f"expected the ASCII code of a character other than '=', such as 1, not {text!r}"
        )
    return code


def _tag_text(path: Path) -> str:
    return "/".join(step for step in path if isinstance(step, str))


def _tag(path: Path) -> bytes:
    return text_to_bytes(_tag_text(path))


def _subscript(path: Path) -> tuple[int, ...]:
    """Return the subscripts of a path: after a first one only element 0 exists."""
    return tuple(step for step in path if isinstance(step, int))


def _element(value: Value, subscripts: tuple[int, ...]) -> Value:
    for subscript in subscripts:
        values = value if isinstance(value, list) else [value]
        value = values[subscript] if subscript < len(values) else None
    return value


def _text(value: Value) -> bytes:
    """Write a scalar, booleans as 1 and 0."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, float):
        return double_text(value).encode()
    return text_to_bytes(str(value))
