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


_MARK: Final = '"\\u0000"'


def _json_around(node: TreeTarget) -> tuple[str, str]:
    """Return the text before and after the values: values come last in the document."""
    whole = msgspec.json.encode(json_form.nested(node, "\0")).decode()
    before, _, after = whole.rpartition(_MARK)
    return f"{before}[", f"]{after}"


def _json_value(moment: str, value: str) -> str:
    return msgspec.json.encode({"timestamp": moment, "value": value}).decode()


def _csv_value(moment: str, value: str) -> str:
    if any(sign in value for sign in ',"\r\n'):
        value = '"' + value.replace('"', '""') + '"'
    return f"{moment},{value}\n"


def _nothing(_node: TreeTarget) -> str:
    return ""


FORMS: Final = {
    "": SeriesFormat(TEXT, _nothing, _csv_value, "", _nothing),
    "csv": SeriesFormat("text/csv; charset=utf-8", _nothing, _csv_value, "", _nothing),
    "json": SeriesFormat(
        JSON,
        lambda node: _json_around(node)[0],
        _json_value,
        ",",
        lambda node: _json_around(node)[1],
    ),
    "xml": SeriesFormat(
        "application/xml; charset=utf-8",
        xml_form.before_values,
        lambda moment, value: f"<sample timestamp='{moment}'>{xml_form.escape(value)}</sample>\n",
        "",
        xml_form.after_values,
    ),
}
"""By the suffix of the path that requests it."""
