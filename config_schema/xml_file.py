"""One file of a configuration: bytes to an XML tree, with parse errors in plain words.

The file is treated as hostile. Its size is limited before it is parsed, a document type declaration
is refused before the parser sees it (so no entity is ever defined, expanded or fetched), and the
parser's own limits on depth and length stay in force.
"""

import codecs
import os
import re
from collections.abc import Mapping
from typing import Final

from lxml import etree

from config_schema.problems import Location
from config_schema.units import quoted

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a single file, even if ConfigCycleDetectionThreshold allows more."""

_BYTE_ORDER_MARKS: Final = (  # the longer ones first: the UTF-16 mark begins the UTF-32 one
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARATION: Final = re.compile(r"""<\?xml(?=\s)[^<>]*?\?>""")
_DECLARED_ENCODING: Final = re.compile(
    rb"""<\?xml\s[^<>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']"""
)
_ENCODINGS: Final = re.compile(r"utf-(8|16|32)(-[lb]e)?|ascii|iso8859-\d+|cp125\d")
"""Encodings of text files by the codecs' own names; others are slow, or not meant for text."""

_PROLOG_PART: Final = re.compile(r"\s+|<!--.*?-->|<\?.*?\?>", re.DOTALL)

_PLAIN_WORDS: Final[Mapping[str, str]] = {
    "ERR_DOCUMENT_EMPTY": "the file is not XML: expected an element such as <AMPSConfig>",
    "ERR_DOCUMENT_END": "there is something after the end of the outermost element",
    "ERR_HYPHEN_IN_COMMENT": "a comment must not contain two hyphens in a row (--)",
    "ERR_COMMENT_NOT_FINISHED": "a comment is opened with <!-- and never closed with -->",
    "ERR_CDATA_NOT_FINISHED": "a section opened with <![CDATA[ is never closed with ]]>",
    "ERR_MISPLACED_CDATA_END": "]]> must not stand in text; write ]]&gt;",
    "ERR_ATTRIBUTE_NOT_STARTED": "the value of an attribute must be in quotes",
    "ERR_ATTRIBUTE_NOT_FINISHED": "the quotes around the value of an attribute are not closed",
    "ERR_ATTRIBUTE_WITHOUT_VALUE": 'an attribute has no value; expected name="value"',
    "ERR_ATTRIBUTE_REDEFINED": "the same attribute is given twice",
    "ERR_LT_IN_ATTRIBUTE": "a < must not stand in the value of an attribute; write &lt;",
    "ERR_ENTITYREF_SEMICOL_MISSING": "an & starts a reference such as &lt;; write &amp; for an &",
    "ERR_UNDECLARED_ENTITY": "only the references &amp; &lt; &gt; &quot; and &apos; are known",
    "ERR_INVALID_CHAR": "there is a character that XML does not allow",
    "ERR_INVALID_CHARREF": "there is a reference to a character that XML does not allow",
    "ERR_INVALID_DEC_CHARREF": "the number of a character is not finished; expected one like &#65;",
    "ERR_INVALID_HEX_CHARREF": "the number of a character is no number; expected one like &#x41;",
    "ERR_GT_REQUIRED": "a tag is not closed with >",
    "ERR_SPACE_REQUIRED": "a blank is missing inside a tag",
    "ERR_RESERVED_XML_NAME": "the <?xml ...?> declaration must be the first thing in the file",
    "ERR_PI_NOT_STARTED": "a <? must be followed by a name",
    "ERR_VERSION_MISSING": 'the <?xml ...?> declaration must begin with version="1.0"',
    "ERR_UNKNOWN_VERSION": "this version of XML is not known; expected version 1.0",
    "ERR_XMLDECL_NOT_FINISHED": "the <?xml ...?> declaration is not closed with ?>",
    "ERR_RESOURCE_LIMIT": "elements are nested too deeply, or a text is too long",
    "ERR_NAME_TOO_LONG": "a name is too long",
    "NS_ERR_QNAME": "a name has a colon in the wrong place; write &lt; for a < that is no tag",
    "NS_ERR_XML_NAMESPACE": "xmlns is given a value that XML does not allow",
    "NS_ERR_UNDEFINED_NAMESPACE": "a name has a prefix that is not declared with xmlns",
}
"""Messages by the parser's own error type; other types are rare, and keep the parser's text."""

_MISMATCH: Final = re.compile(r"Opening and ending tag mismatch: (\S+) line (\d+) and (\S+)")
_NEVER_CLOSED: Final = re.compile(r"Premature end of data in tag (\S+) line (\d+)")
FRAGMENT: Final = "included-file"
"""The name of the element that `parse_fragment` puts around the content of a file."""


class ConfigFileError(Exception):
    """A file that cannot be used; `location` is the place, the text is the reason."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location = location


def read(path: str, shown: str) -> str:
    """Read the text of an XML file, by its byte order mark, its declared encoding, or as UTF-8.

    Args:
        path: the file to open.
        shown: its name in problems.

    Returns:
        Its text.

    Raises:
        ConfigFileError: it cannot be opened, is too large, or is not text in its encoding.
    """
    whole = Location(shown, 0)
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ConfigFileError(whole, f"cannot be read: {_reason(error)}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigFileError(
            whole, f"is larger than {MAX_FILE_BYTES >> 20} MB, too large to be read"
        )
    if not content.strip():
        raise ConfigFileError(whole, "is empty; expected an XML file")
    return _decode(content, shown)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without blocking until a writer opens it, should it be a pipe."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def parse(text: str, shown: str) -> etree._Element:
    """Parse the text of a configuration file.

    Returns:
        Its outermost element.

    Raises:
        ConfigFileError: it is not well-formed XML, or declares a document type.
    """
    _refuse_document_type(text, shown)
    return _parse(text, shown)


def parse_fragment(text: str, shown: str) -> etree._Element:
    """Parse the text of an included file, which may have any number of outermost elements.

    Returns:
        A placeholder element that contains them.

    Raises:
        ConfigFileError: it is not well-formed XML, or declares a document type.
    """
    _refuse_document_type(text, shown)
    declaration = _DECLARATION.match(text)
    if declaration:  # it may not stand inside an element; its lines must stay counted
        text = "\n" * declaration[0].count("\n") + text[declaration.end() :]
    return _parse(f"<{FRAGMENT}>{text}</{FRAGMENT}>", shown)


def _decode(content: bytes, shown: str) -> str:
    mark, encoding = next(
        ((mark, name) for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), (b"", "")
    )
    if not encoding:
        declared = _DECLARED_ENCODING.match(content)
        encoding = declared[1].decode("ascii") if declared else "utf-8"
    if not _known(encoding):
        raise ConfigFileError(
            Location(shown, 1), f"encoding {quoted(encoding)} is not known; expected UTF-8"
        )
    try:
        return content[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, len(mark) + error.start) + 1
        raise ConfigFileError(
            Location(shown, line),
            f"byte 0x{error.object[error.start]:02x} is not text in {encoding}; "
            "expected UTF-8 or the encoding named in the <?xml ...?> declaration",
        ) from None


def _known(encoding: str) -> bool:
    try:
        return _ENCODINGS.fullmatch(codecs.lookup(encoding).name) is not None
    except LookupError:
        return False


def _refuse_document_type(text: str, shown: str) -> None:
    position = 0
    while part := _PROLOG_PART.match(text, position):
        position = part.end()
    if text.startswith("<!DOCTYPE", position):
        raise ConfigFileError(
            Location(shown, text.count("\n", 0, position) + 1),
            "a document type (<!DOCTYPE ...>) is not accepted; "
            "use Include for shared parts and ${VARIABLE} for values",
        )


def _parse(text: str, shown: str) -> etree._Element:
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, strip_cdata=False
    )
    try:
        return etree.fromstring(text.encode("utf-8"), parser)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise ConfigFileError(Location(shown, line), _PLAIN_WORDS["ERR_INVALID_CHAR"]) from None
    except etree.XMLSyntaxError:
        first = parser.error_log.filter_from_errors()[0]
        last_line = text.count("\n") + 1
        message = _in_plain_words(first.type_name, first.message)
        raise ConfigFileError(
            Location(shown, min(max(first.line, 1), last_line)), message
        ) from None


def _in_plain_words(kind: str, message: str) -> str:
    mismatch = _MISMATCH.match(message)
    if mismatch and mismatch[1] == FRAGMENT:
        return f"</{mismatch[3]}> closes an element that was not opened"
    if mismatch and mismatch[3] != FRAGMENT:
        return f"</{mismatch[3]}> does not match <{mismatch[1]}> opened on line {mismatch[2]}"
    unclosed = mismatch or _NEVER_CLOSED.match(message)
    if unclosed:
        return f"<{unclosed[1]}> opened on line {unclosed[2]} is never closed"
    if "EntityRef: no name" in message:
        return _PLAIN_WORDS["ERR_ENTITYREF_SEMICOL_MISSING"]
    if kind == "ERR_NAME_REQUIRED" and "attribute" in message:
        return 'there is something in a tag that is no attribute; expected name="value"'
    if kind == "ERR_NAME_REQUIRED":
        return "a < must be followed by the name of an element; write &lt; for a <"
    return _PLAIN_WORDS.get(kind, f"this is not well-formed XML: {message}")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a directory; expected a file"
    return str(error.strerror if isinstance(error, OSError) else error).lower()
