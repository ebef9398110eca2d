"""The forms of explanations: as those of the tree, although explanations are no part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as escape_html
from typing import TYPE_CHECKING, Final

import msgspec

from server.admin.documents import html_form
from server.admin.documents.xml_form import attribute, escape
from server.admin.http.messages import HTML, JSON, XML, HttpDocument
from server.admin.tree import link

if TYPE_CHECKING:
    from server.admin.diagnosis.document import DiagnosisContent

FORMS: Final = ("json", "xml")

_SINGULAR: Final = {
    "sentences": "sentence",
    "reasons": "reason",
    "limits": "limit",
    "subscriptions": "subscription",
    "queries": "query",
    "filters": "filter",
    "clients": "client",
    "checks": "check",
    "causes": "cause",
}
"""The name of a list's elements in XML."""


def render(names: Sequence[str], content: dict[str, DiagnosisContent], form: str) -> HttpDocument:
    """Return a document.

    Args:
        names: the parts of its path; a client's id follows `clients`.
        content: its content.
        form: "json", "xml", or nothing for a page.
    """
    if form == "":
        return HttpDocument(_page(names, content), HTML)
    nested: DiagnosisContent = content
    for depth in range(len(names) - 1, -1, -1):
        if depth and names[depth - 1] == "clients":
            nested = [{"id": names[depth], **nested}] if isinstance(nested, dict) else nested
        else:
            nested = {names[depth]: nested}
    if form == "json":
        return HttpDocument(msgspec.json.encode(_texts(nested)), JSON)
    lines = _elements(nested, "") if isinstance(nested, dict) else ()
    return HttpDocument(("\n".join(lines) + "\n").encode(errors="replace"), XML)


def _text(value: str | float) -> str:
    return f"{value:.12f}" if isinstance(value, float) else str(value)


def _texts(content: DiagnosisContent) -> object:
    """Return the same with numbers as texts, as in all documents."""
    if isinstance(content, dict):
        return {name: _texts(element) for name, element in content.items()}
    if isinstance(content, list):
        return [_texts(element) for element in content]
    return _text(content)


def _elements(content: dict[str, DiagnosisContent], indent: str) -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, list):
            yield f"{indent}<{name}>"
            for element in value:
                yield from _element(_SINGULAR[name], element, indent + "    ")
            yield f"{indent}</{name}>"
        else:
            yield from _element(name, value, indent)


def _element(name: str, value: DiagnosisContent, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        inner = dict(value)
        identity = inner.pop("id", None)
        id_attribute = "" if identity is None else f" id='{attribute(str(identity))}'"
        yield f"{indent}<{name}{id_attribute}>"
        yield from _elements(inner, indent + "    ")
        yield f"{indent}</{name}>"
    elif not isinstance(value, list):
        yield f"{indent}<{name}>{escape(_text(value))}</{name}>"


def _page(names: Sequence[str], content: dict[str, DiagnosisContent]) -> bytes:
    path = escape_html(link(names))
    other_forms = f'<a href="{path}.json">JSON</a> and <a href="{path}.xml">XML</a>'
    lines = [
        *html_form.trail(names),
        f"<main><h1>{escape_html(names[-1])}</h1>",
        *_sections(content),
        f"<p><small>Also as {other_forms}.</small></p></main>",
    ]
    return html_form.page(" / ".join(names), lines)


def _sections(content: dict[str, DiagnosisContent]) -> Iterator[str]:
    """Yield the parts of a page: single values first, then one table per dictionary or list."""
    yield from _table("", content)
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _table(name, value)
        elif isinstance(value, list):
            yield from (f"<p>{_cell(one)}</p>" for one in value if isinstance(one, str))
            rows = [one for one in value if isinstance(one, dict)]
            if rows:
                yield from _wide_table(name, rows)


def _table(name: str, row: dict[str, DiagnosisContent]) -> Iterator[str]:
    """Yield a table with a line for each value."""
    yield f"<table><caption>{escape_html(name)}</caption><tbody>"
    for key, value in row.items():
        if not isinstance(value, dict | list):
            yield f'<tr><th scope="row">{escape_html(key)}</th><td>{_cell(value)}</td></tr>'
    yield "</tbody></table>"


def _wide_table(name: str, rows: list[dict[str, DiagnosisContent]]) -> Iterator[str]:
    """Yield a table with a line for each element of a list, and a column for each key of any."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    yield f"<table><caption>{escape_html(name)}</caption><thead><tr>"
    yield from (f'<th scope="col">{escape_html(key)}</th>' for key in columns)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{_cell(row.get(key, ''))}</td>" for key in columns) + "</tr>"
    yield "</tbody></table>"


def _cell(value: DiagnosisContent) -> str:
    return "" if isinstance(value, dict | list) else escape_html(_text(value))
