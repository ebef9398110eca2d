"""Pages: the tree for browsers.

Programs take a value's page, and remove the tags: the rest is the value, and nothing else. So
such a page has no title. The others are for navigation of the tree; no page has a script.
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
"""Fields that name an entry for display if its id is a number; the first one present counts."""


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


def node_page(
    tree: SnapshotTree,
    target: TreeTarget,
    timestamp: str,
    nodes: Sequence[TreeNode],
    extra_names: Sequence[str],
) -> bytes:
    """Return the page of a target that is not a value.

    Args:
        tree: the tree of the target.
        target: the target.
        timestamp: of the sample.
        nodes: the nodes below it that the requester may see.
        extra_names: names of further resources there that are not a part of samples.
    """
    names = target.names
    return page(
        " / ".join(names),
        [*trail(names), *_node_lines(tree, target, timestamp, nodes, extra_names)],
    )


def _node_lines(
    tree: SnapshotTree,
    target: TreeTarget,
    timestamp: str,
    nodes: Sequence[TreeNode],
    extra_names: Sequence[str],
) -> Iterator[str]:
    yield f"<main><h1>{escape(target.names[-1])}</h1>"
    link_rows = [(link([*target.names, node.name]), node.name, "") for node in nodes]
    link_rows += [(link([*target.names, name]), name, "") for name in extra_names]
    if target.node.has_entries and target.id is None:
        link_rows = list(_entries(tree, target))
        yield f"<p>{len(link_rows)} {'entry' if len(link_rows) == 1 else 'entries'}</p>"
    yield from links(link_rows)
    values = tree.values(target)
    if target.node.resource is not None and values is not None:
        yield "<table><caption>Values</caption><tbody>"
        for field, text in zip(
            target.node.resource.fields, texts_of(target.node.resource)(values), strict=True
        ):
            href = escape(link([*target.names, field.name]))
            yield (
                f'<tr><th scope="row"><a href="{href}">{field.name}</a></th>'
                f"<td>{escape(text)}</td><td><small>{escape(field.description)}</small></td></tr>"
            )
        yield "</tbody></table>"
    path = escape(target.path)
    yield (
        f'<p><small>Sample of {timestamp}. Also as <a href="{path}.json">JSON</a> and '
        f'<a href="{path}.xml">XML</a>.</small></p></main>'
    )


def _entries(tree: SnapshotTree, target: TreeTarget) -> Iterator[tuple[str, str, str]]:
    fields = () if target.node.resource is None else target.node.resource.fields
    names = [field.name for field in fields]
    label_index = next((names.index(name) for name in _SHOWN_NAMES if name in names), None)
    for identity, values in tree.entries(target.node).items():
        name = "" if label_index is None else str(values[label_index])
        yield link([*target.names, identity]), identity, "" if name == identity else name


def links(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield lines with links: each has an address, a name, and another name or a description."""
    if rows:
        yield "<ul>"
        for href, name, label in rows:
            note = f" <small>{escape(label)}</small>" if label else ""
            yield f'<li><a href="{escape(href)}">{escape(name)}</a>{note}</li>'
        yield "</ul>"


def trail(names: Sequence[str]) -> Iterator[str]:
    """Yield lines with the path of a page, as links."""
    yield '<nav aria-label="Path"><ol>'
    for length, name in enumerate(names, 1):
        current = ' aria-current="page"' if length == len(names) else ""
        yield f'<li><a href="{escape(link(names[:length]))}"{current}>{escape(name)}</a></li>'
    yield "</ol></nav>"
