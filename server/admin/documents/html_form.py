"""Pages: the tree for browsers.

Programs take a value's page, and remove the tags: what is left is the value, and nothing else. So
such a page has no title. The others let a person navigate the tree; no page has a script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from server.admin.documents.values import texts_of
from server.admin.tree import SnapshotTree, TreeNode, TreeTarget, link

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
nav ol{list-style:none;padding:0;display:flex;flex-wrap:wrap}
nav li:not(:first-child)::before{content:"/";padding:0 .4rem;opacity:.6}
table{border-collapse:collapse;width:100%}
caption{text-align:left;font-weight:600;padding:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;
border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}
th{font-weight:400;white-space:nowrap}
td{overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
small{opacity:.75}
"""

STYLE_SOURCE: Final = (
    f"'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)
"""The source that a Content-Security-Policy has to allow for these pages."""

_SHOWN_NAMES: Final = ("client_name", "topic", "name", "file_name", "sub_id")
"""Fields by which a person knows an entry that is called by a number; the first one present."""


def leaf(text: str) -> bytes:
    """Return the page of a value."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="color-scheme" content="light dark"></head>'
        f"<body><p>{escape(text)}</p></body></html>"
    ).encode(errors="replace")


def page(title: str, body: Iterable[str], head: str = "") -> bytes:
    """Return a page that is not a value's.

    Args:
        title: its title.
        body: its lines.
        head: further content of its head.
    """
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"{head}<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        *body,
        "</body></html>",
    ]
    return "\n".join(lines).encode(errors="replace")


def node(
    tree: SnapshotTree, at: TreeTarget, moment: str, shown: Sequence[TreeNode], more: Sequence[str]
) -> bytes:
    """Return the page of a node that is not a value.

    Args:
        tree: the tree of the node.
        at: the node.
        moment: of the sample.
        shown: the places below it that the visitor may see.
        more: names of further resources there that are not a part of samples.
    """
    names = at.names
    return page(" / ".join(names), [*trail(names), *_node(tree, at, moment, shown, more)])


def _node(
    tree: SnapshotTree, at: TreeTarget, moment: str, shown: Sequence[TreeNode], more: Sequence[str]
) -> Iterator[str]:
    yield f"<main><h1>{escape(at.names[-1])}</h1>"
    below = [(link([*at.names, place.name]), place.name, "") for place in shown]
    below += [(link([*at.names, name]), name, "") for name in more]
    if at.place.has_entries and at.id is None:
        below = list(_entries(tree, at))
        yield f"<p>{len(below)} {'entry' if len(below) == 1 else 'entries'}</p>"
    yield from links(below)
    values = tree.values(at)
    if at.place.resource is not None and values is not None:
        yield "<table><caption>Values</caption><tbody>"
        for field, text in zip(
            at.place.resource.fields, texts_of(at.place.resource)(values), strict=True
        ):
            href = escape(link([*at.names, field.name]))
            yield (
                f'<tr><th scope="row"><a href="{href}">{field.name}</a></th>'
                f"<td>{escape(text)}</td><td><small>{escape(field.description)}</small></td></tr>"
            )
        yield "</tbody></table>"
    path = escape(at.path)
    yield (
        f'<p><small>Sample of {moment}. Also as <a href="{path}.json">JSON</a> and '
        f'<a href="{path}.xml">XML</a>.</small></p></main>'
    )


def _entries(tree: SnapshotTree, at: TreeTarget) -> Iterator[tuple[str, str, str]]:
    fields = () if at.place.resource is None else at.place.resource.fields
    names = [field.name for field in fields]
    known_by = next((names.index(name) for name in _SHOWN_NAMES if name in names), None)
    for identity, values in tree.entries(at.place).items():
        name = "" if known_by is None else str(values[known_by])
        yield link([*at.names, identity]), identity, "" if name == identity else name


def links(below: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield lines with links: each has an address, a name, and another name or a description."""
    if below:
        yield "<ul>"
        for href, name, known_as in below:
            also = f" <small>{escape(known_as)}</small>" if known_as else ""
            yield f'<li><a href="{escape(href)}">{escape(name)}</a>{also}</li>'
        yield "</ul>"


def trail(names: Sequence[str]) -> Iterator[str]:
    """Yield lines with the path of a page, as links."""
    yield '<nav aria-label="Path"><ol>'
    for length, name in enumerate(names, 1):
        current = ' aria-current="page"' if length == len(names) else ""
        yield f'<li><a href="{escape(link(names[:length]))}"{current}>{escape(name)}</a></li>'
    yield "</ol></nav>"
