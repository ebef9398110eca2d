"""Writes docs/client_api.md from the docstrings of the client.

Run it after a docstring or a signature has changed: `make pages`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

from amperage import client

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "client_api.md"
_HEAD: Final = """\
# The client's API

Every public name of `amperage`, from its docstrings, which `help()` shows as well.
[client.md](client.md) explains how they are used together. This page is generated from the package
`client`; after a change there, run `make pages`.
"""
_GROUPS: Final = {
    "Connecting": ["connect", "connect_async"],
    "Clients": ["Client", "HAClient", "AsyncClient", "AsyncHAClient"],
    "Streams and messages": ["MessageStream", "AsyncMessageStream", "Message", "DeliveryReport"],
    "Servers and states": [
        *("ClientStatistics", "Server", "ServerChooser", "ServerUri", "parse_uri", "Backoff"),
        *("ConnectionState", "ConnectionEvent"),
    ],
    "Stores": [
        *("PublishStore", "FilePublishStore", "PublishStorage", "StoredMessage"),
        *("BookmarkStore", "FileBookmarkStore", "BookmarkStorage", "BookmarkTrail"),
    ],
    "Authentication": [
        *("Authenticator", "MutualAuthenticator", "Credentials", "PasswordAuthenticator"),
        *("SecretAuthenticator", "SecretSource", "SecretFile", "SecretVariable", "SecretCommand"),
        *("KerberosAuthenticator", "make_ssl_context"),
    ],
}
_SEE: Final = {"AsyncClient": "Client", "AsyncHAClient": "HAClient", "HAClient": "Client"}
"""Classes whose methods are explained at another one, but for those that are their own."""

_SECTION: Final = re.compile(r"^(Args|Attributes|Raises|Returns):$", re.MULTILINE)
_ANNOTATION: Final = re.compile(r"(: |-> )'([^']*)'")
_WIDTH: Final = 100


def page() -> str:
    """Return the whole page, in Markdown."""
    errors = [
        name
        for name in client.__all__
        if isinstance(it := getattr(client, name), type) and issubclass(it, Exception)
    ]
    parts = [_HEAD]
    for title, names in {**_GROUPS, "Errors": errors}.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _described(name, getattr(client, name))
    constants = [name for name in client.__all__ if isinstance(getattr(client, name), str)]
    rows = [f"| `{name}` | `{getattr(client, name)!r}` |" for name in constants]
    parts.append("\n".join(["## Bookmarks\n", "| constant | value |", "| --- | --- |", *rows, ""]))
    return "\n".join(parts)


def _described(name: str, it: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not isinstance(it, type):
        yield from (_signature(name, it), _prose(it))
        return
    if issubclass(it, Exception):
        yield _prose(it)
        return
    if not issubclass(it, Enum) and not getattr(it, "_is_protocol", False):
        yield _signature(name, it)
    yield _prose(it)
    if issubclass(it, Enum):
        yield "\n".join([*(f"- `{member.name}`" for member in it), ""])
        return
    known = dir(getattr(client, _SEE[name])) if name in _SEE else ()
    for method, function in inspect.getmembers(it):
        is_property = isinstance(function, property)
        if method.startswith("_") or method in known:
            continue
        if not is_property and not inspect.isfunction(function):
            continue
        yield f"#### {name}.{method}\n"
        if not is_property:
            yield _signature(method, function)
        yield _prose(function)


def _signature(name: str, function: Any) -> str:
    text = _ANNOTATION.sub(r"\1\2", str(inspect.signature(function)))
    text = re.sub(r"\(self(, )?", "(", text)
    text = text.removesuffix(" -> None")
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    if len(text) > _WIDTH - len(name):
        inside, _, returned = text[1:].rpartition(")")
        inside = re.sub(r", (?=\*?\w+:|\*,|/)", ",\n    ", inside)
        text = f"(\n    {inside},\n){returned}"
    return f"```text\n{prefix}{name}{text}\n```\n"


def _prose(it: Any) -> str:
    """Return a docstring as Markdown: its sections are lists."""
    pieces = _SECTION.split(inspect.getdoc(it) or "")
    parts = [pieces[0].strip()]
    for title, content in zip(pieces[1::2], pieces[2::2], strict=True):
        listed, rest = _listed(content, is_named=title != "Returns")
        parts += [f"*{title}*\n\n{listed}", *filter(None, [rest])]
    return "\n\n".join(parts) + "\n"


def _listed(content: str, *, is_named: bool) -> tuple[str, str]:
    """Return the indented part of a section, named entries as a list, and the text behind it."""
    lines = content.strip("\n").splitlines()
    end = next((n for n, line in enumerate(lines) if line and line[0] != " "), len(lines))
    inside, rest = "\n".join(lines[:end]), "\n".join(lines[end:])
    if not is_named:
        return " ".join(line.strip() for line in lines[:end]), rest.strip()
    entries: list[str] = []
    for line in inspect.cleandoc(inside).splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line:
            name, colon, text = line.partition(": ")
            has_name = colon and re.fullmatch(r"\w+(, \w+)*", name)
            entries.append(f"- `{name}`: {text}" if has_name else f"- {line}")
    return "\n".join(entries), rest.strip()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
