"""Texts with variables, whose values are escaped according to the kind of the text.

A value may come from any client: its name, a filter, a message. It is data in every context: it
ends no string, adds no field, names no other directory and becomes no expression. The kind of an
option in the catalogue determines which characters are escaped, and how; `TEMPLATES` and
`body_template` have one class for each. Filters, conditions and values are in `expressions`, shell
commands in `server/util/shell_quoting.py`.

Where an order, the options of a command, an argument or a message is one variable and nothing
else, there is nothing to protect: its value is the whole.
"""

from __future__ import annotations

import glob
import re
from typing import TYPE_CHECKING, Final

import msgspec

from actions.context import VariableTemplate, byte_of
from actions.module import StepError
from config_schema.catalogue import ValueKind
from config_schema.regex import has_regex_characters
from server.message_types.fix import FixType
from server.message_types.json_type import JsonType
from server.message_types.xml_type import XmlType
from server.util.encoding import bytes_to_text, text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actions.context import ActionContext
    from server.message_types.base import MessageType

_OWN_PATHS: Final = frozenset(("AMPS_FILE_PATH", "AMPS_MINIDUMP_PATH"))
"""Variables with paths that the instance chooses, not a client."""

_SLASH: Final = re.compile(r"/(?![^{}]*\}\})")
"""A slash that is not part of a variable's name."""

_INVALID_IN_ARGUMENT: Final = re.compile(rb"[\x00-\x1f'\"\\`]")
_WORD: Final = re.compile(rb"[\w.:/@+\x80-\xff-]*")
_JSON_ESCAPES: Final = {
    **{code: b"\\u%04x" % code for code in range(0x20)},
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0C: b"\\f",
    0x0D: b"\\r",
    0x22: b'\\"',
    0x5C: b"\\\\",
}
_JSON_ESCAPED: Final = re.compile(rb'[\x00-\x1f"\\]')
_XML_ESCAPES: Final = {
    b"&": b"&amp;",
    b"<": b"&lt;",
    b">": b"&gt;",
    b"'": b"&apos;",
    b'"': b"&quot;",
}
_XML_ESCAPED: Final = re.compile(rb"[&<>'\"]")
_CDATA_EDGE: Final = re.compile(r"<!\[CDATA\[|\]\]>")


class FileTemplate(VariableTemplate):
    """A path: a value is part of one of its names, and cannot leave its directory."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._name_templates = [VariableTemplate(name) for name in _SLASH.split(text)]

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values.

        Raises:
            StepError: a value has a slash, or a name would be that of another directory.
        """
        return b"/".join(self._expand_name(name, context) for name in self._name_templates)

    def _expand_name(self, template: VariableTemplate, context: ActionContext) -> bytes:
        pieces = []
        for text, name in template.parts:
            value = context[name]
            if name not in _OWN_PATHS:
                self.check_value(name, value)
            pieces += [text_to_bytes(text), self.escape(value)]
        expanded = b"".join([*pieces, text_to_bytes(template.tail)])
        if template.parts and expanded in (b"", b".", b".."):
            names = ", ".join(name for _, name in template.parts)
            raise StepError(
                f"{bytes_to_text(expanded)!r} as the value of {names} would leave its path"
            )
        return expanded

    def check_value(self, name: str, value: bytes) -> None:
        """Refuse a value that cannot be part of a name.

        Raises:
            StepError: the value cannot be part of a name.
        """
        if b"/" in value or b"\0" in value:
            raise StepError(f"the value of {name} has a slash or a zero byte: {_shown(value)}")

    def escape(self, value: bytes) -> bytes:
        """Escape a value that has been checked."""
        return value


class FilePatternTemplate(FileTemplate):
    """A shell pattern of files: a value also matches only itself."""

    def escape(self, value: bytes) -> bytes:
        """Escape the characters that would match others."""
        return glob.escape(value)


class ArgumentTemplate(FileTemplate):
    """A word of a command line, which may hold a path or an expression."""

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values.

        Raises:
            StepError: a value has a slash, or a character that would end a string in an
                expression.
        """
        return (
            VariableTemplate.expand(self, context) if self.is_variable else super().expand(context)
        )

    def check_value(self, name: str, value: bytes) -> None:
        """See `FileTemplate`."""
        super().check_value(name, value)
        if _INVALID_IN_ARGUMENT.search(value):
            raise StepError(f"the value of {name} has a quote or the like: {_shown(value)}")


class WordTemplate(VariableTemplate):
    """An order, or options of a command: a value is one word, and adds no other."""

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values.

        Raises:
            StepError: a value is more than a word.
        """
        for _, name in () if self.is_variable else self.parts:
            if _WORD.fullmatch(context[name]) is None:
                raise StepError(f"the value of {name} is more than a word: {_shown(context[name])}")
        return super().expand(context)


class TopicTemplate(VariableTemplate):
    """A topic, or a regular expression over topics: a value is part of a topic's name."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        fixed = "".join([*(preceding for preceding, _ in self.parts), self.tail])
        self.is_literal = bool(self.parts) and not has_regex_characters(fixed)

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values."""
        if self.is_literal:
            return super().expand(context)
        return self.expand_with(
            lambda _, name: text_to_bytes(re.escape(bytes_to_text(context[name])))
        )


class JsonTemplate(VariableTemplate):
    """JSON: within a string, a value is part of it; elsewhere it is one value."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._in_string: list[bool] = []
        is_open = False
        for preceding, _ in self.parts:
            is_open = _ends_in_string(preceding, is_open)
            self._in_string.append(is_open)

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values."""
        return self.expand_with(
            lambda number, name: (_in_json if self._in_string[number] else _as_json)(context[name])
        )


class XmlTemplate(VariableTemplate):
    """XML: a value is text, within an element, an attribute or a CDATA section."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._in_cdata: list[bool] = []
        is_open = False
        for preceding, _ in self.parts:
            for edge in _CDATA_EDGE.findall(preceding):
                is_open = edge != "]]>"
            self._in_cdata.append(is_open)

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values."""

        def value(number: int, name: str) -> bytes:
            if self._in_cdata[number]:
                return context[name].replace(b"]]>", b"]]]]><![CDATA[>")
            return _XML_ESCAPED.sub(lambda match: _XML_ESCAPES[match[0]], context[name])

        return self.expand_with(value)


class FixTemplate(VariableTemplate):
    """FIX or NVFIX: behind a `=`, a value is part of a field; elsewhere it may be fields.

    These formats have no escape, so that a separator in a field becomes a blank, as in messages
    that the server writes.

    Args:
        text: the text.
        separators: the bytes that end a field.
    """

    def __init__(self, text: str, separators: bytes) -> None:
        super().__init__(text)
        self._blanks = bytes.maketrans(separators, b" " * len(separators))
        self._in_value: list[bool] = []
        field = b""
        for preceding, _ in self.parts:
            for octet in text_to_bytes(preceding):
                field = b"" if octet in separators else field + bytes([octet])
            self._in_value.append(b"=" in field)

    def expand(self, context: ActionContext) -> bytes:
        """Replace variables by their values."""
        return self.expand_with(
            lambda number, name: (
                context[name].translate(self._blanks) if self._in_value[number] else context[name]
            )
        )


TEMPLATES: Final[Mapping[ValueKind, Callable[[str], VariableTemplate]]] = {
    **dict.fromkeys(
        (  # compared with names, parsed as a number, or written verbatim
            ValueKind.TEXT,
            ValueKind.TRANSLATION,
            ValueKind.INTERVAL,
            ValueKind.COUNT,
            ValueKind.BOOLEAN,
            ValueKind.PERCENTAGE,
            ValueKind.MESSAGE_TYPE,
            ValueKind.TRANSPORT,
            ValueKind.TOPIC,
            ValueKind.STORED_TOPIC,
            ValueKind.QUEUE_TOPIC,
        ),
        VariableTemplate,
    ),
    ValueKind.COMMAND: VariableTemplate,  # its values are passed through the environment
    ValueKind.FILE: FileTemplate,
    ValueKind.FILE_PATTERN: FilePatternTemplate,
    ValueKind.ARGUMENTS: ArgumentTemplate,
    ValueKind.STORED_TOPIC_PATTERN: TopicTemplate,
    ValueKind.ORDER_BY: WordTemplate,
    ValueKind.SOW_OPTIONS: WordTemplate,
}
"""The classes of templates for the texts of options, by the kind of the option."""


def body_template(text: str, message_type: MessageType) -> VariableTemplate:
    """Return a template for a message.

    Values are escaped in JSON, XML, FIX and NVFIX; the other formats are not text, so that a value
    can only be the whole message.
    """
    fixed = _with_bytes(text)
    if VariableTemplate(fixed).is_variable:
        return VariableTemplate(fixed)
    if isinstance(message_type, JsonType):
        return JsonTemplate(fixed)
    if isinstance(message_type, XmlType):
        return XmlTemplate(fixed)
    if isinstance(message_type, FixType):
        return FixTemplate(fixed, message_type.separators)
    return VariableTemplate(fixed)


def _with_bytes(text: str) -> str:
    """Replace variables like AMPS_BYTE_01 by their bytes: these are fixed text, not values."""
    template = VariableTemplate(text)
    pieces = []
    for preceding, name in template.parts:
        byte = byte_of(name)
        pieces += [preceding, f"{{{{{name}}}}}" if byte is None else bytes_to_text(byte)]
    return "".join([*pieces, template.tail])


def _ends_in_string(text: str, is_open: bool) -> bool:
    """Return whether a piece of JSON ends within a string."""
    is_escaped = False
    for character in text:
        if is_escaped:
            is_escaped = False
        elif is_open and character == "\\":
            is_escaped = True
        elif character == '"':
            is_open = not is_open
    return is_open


def _in_json(value: bytes) -> bytes:
    return _JSON_ESCAPED.sub(lambda match: _JSON_ESCAPES[match[0][0]], value)


def _as_json(value: bytes) -> bytes:
    """Return a value that is JSON as it is, and any other as a string."""
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b'"%s"' % _in_json(value)
    return value


def _shown(value: bytes) -> str:
    return f"{bytes_to_text(value)[:60]!r}"
