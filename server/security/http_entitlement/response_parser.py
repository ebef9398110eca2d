"""Parses the responses of a web service as permission documents.

A service may send unknown fields, and `null` in place of a value. But a name that is close to a
known one is taken for a typing error, and the document is refused: with a `selct`, more fields
would be visible than was intended.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from config_schema.suggest import nearest
from server.security.permission_document import (
    KNOWN_FIELDS,
    RULE_FIELDS,
    DocumentError,
    PermissionDocument,
    make_document,
)

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions
    from server.security.permission_document import DocumentPath

MAX_DOCUMENT_SIZE: Final = 4 * 1024 * 1024
"""Size limit of a document, in bytes."""

LARGE_DOCUMENT_SIZE: Final = 65_536
"""Minimum size of a document that is parsed on another thread, so as not to block the worker."""


class DocumentParser:
    """Parses documents, and shares equal documents between users.

    Args:
        functions: the functions that filters may call.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._documents: WeakValueDictionary[bytes, PermissionDocument] = WeakValueDictionary()

    def parse(self, text: bytes) -> PermissionDocument:
        """Parse a document; equal ones are the same object, as long as it is referenced.

        Raises:
            DocumentError: it cannot be used.
        """
        key = hashlib.blake2b(text, digest_size=32).digest()
        document = self._documents.get(key)
        if document is None:
            document = self._documents[key] = make_document(_content(text), self._functions)
        return document


def _content(text: bytes) -> dict[str, Any]:
    """Return the known fields of a document."""
    try:
        content = msgspec.json.decode(text.removeprefix(codecs.BOM_UTF8))
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"it is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise DocumentError("expected a JSON object")
    _refuse_doubled(text)
    fields = _known_fields(content, KNOWN_FIELDS, ())
    for name in ("topic", "admin"):
        entries = fields.get(name)
        if isinstance(entries, list):
            fields[name] = [
                _known_fields(entry, RULE_FIELDS, (name, number))
                if isinstance(entry, dict)
                else entry
                for number, entry in enumerate(entries)
            ]
    user = fields.get("user_name")
    if isinstance(user, str) and not (user and user.isprintable()):
        raise DocumentError("expected a name without control characters", ("user_name",))
    return fields


def _refuse_doubled(text: bytes) -> None:
    """Refuse duplicate fields: it is ambiguous which one applies, and JSON does not specify it."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        names = {name for name, _ in pairs}
        for name, _ in pairs:
            if name not in names:
                raise DocumentError(f"{name!r:.100} is there twice")
            names.remove(name)

    try:
        json.loads(text.decode("utf-8-sig"), object_pairs_hook=check)
    except DocumentError:
        raise
    except (ValueError, RecursionError) as error:  # a number may be too long, too
        raise DocumentError(f"it is no JSON: {error}") from None


def _known_fields(
    content: dict[str, Any], names: Collection[str], path: DocumentPath
) -> dict[str, Any]:
    """Return the fields of known names that have a value."""
    for name in content.keys() - names:
        meant = nearest(name, names)
        if meant is not None:
            raise DocumentError(f"{name!r} is not known: did you mean {meant}?", path)
    return {name: value for name, value in content.items() if name in names and value is not None}
