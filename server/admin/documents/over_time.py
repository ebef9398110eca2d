"""The values of a leaf over time, streamed page after page, in each of the forms.

Source: AMPS User Guide, Time Range Selection; CSV Document Output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from server.admin.documents import json_form, xml_form
from server.admin.http.messages import JSON, TEXT
from server.admin.tree import TreeTarget


class SeriesFormat(NamedTuple):
    """The format of values over time.

    Attributes:
        content_type: of the document.
        format_header: begins the document of a leaf.
        format_value: formats a value with its moment.
        separator: separates two values.
        format_footer: ends the document.
    """

    content_type: str
    format_header: Callable[[TreeTarget], str]
    format_value: Callable[[str, str], str]
    separator: str
    format_footer: Callable[[TreeTarget], str]


_PLACEHOLDER: Final = '"\\u0000"'


def _json_around(target: TreeTarget) -> tuple[str, str]:
    """Return the text before and after the values: values come last in the document."""
    document = msgspec.json.encode(json_form.nested(target, "\0")).decode()
    before, _, after = document.rpartition(_PLACEHOLDER)
    return f"{before}[", f"]{after}"


def _json_value(timestamp: str, value: str) -> str:
    return msgspec.json.encode({"timestamp": timestamp, "value": value}).decode()


def _csv_value(timestamp: str, value: str) -> str:
    if any(character in value for character in ',"\r\n'):
        value = '"' + value.replace('"', '""') + '"'
    return f"{timestamp},{value}\n"


def _nothing(_node: TreeTarget) -> str:
    return ""


FORMS: Final = {
    "": SeriesFormat(TEXT, _nothing, _csv_value, "", _nothing),
    "csv": SeriesFormat("text/csv; charset=utf-8", _nothing, _csv_value, "", _nothing),
    "json": SeriesFormat(
        JSON,
        lambda target: _json_around(target)[0],
        _json_value,
        ",",
        lambda target: _json_around(target)[1],
    ),
    "xml": SeriesFormat(
        "application/xml; charset=utf-8",
        xml_form.before_values,
        lambda timestamp, value: (
            f"<sample timestamp='{timestamp}'>{xml_form.escape(value)}</sample>\n"
        ),
        "",
        xml_form.after_values,
    ),
}
"""By the suffix of the path that requests it."""
