"""The configuration for display: the text as read, with its secrets redacted.

Programs look for elements in it as its author spelled them, so it is not rewritten.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from html import unescape
from typing import Final

from config_schema.document import ConfigDocument
from config_schema.redaction import (
    HIDDEN,
    RULES,
    SECRET,
    find_secrets,
    is_secret_name,
    masked,
    without_values,
)

_NAMES: Final = r"(?:\w[\w.-]*)?(?:Password|Passphrase|Secret|Token|ApiKey|HTTPHeader)"
"""The endings of names of elements with a secret text; names of files do not end so. A header may
carry the credentials for a service.
"""

_RULES: Final = (
    re.compile(
        rf"<(?P<name>{_NAMES})(?:\s[^<>]*)?>(?P<{SECRET}>.*?)</(?P=name)\s*>",
        re.DOTALL | re.IGNORECASE,
    ),
    re.compile(rf"\s{_NAMES}\s*=\s*\"(?P<{SECRET}>[^\"<]*)\"", re.IGNORECASE),
    re.compile(rf"\s{_NAMES}\s*=\s*'(?P<{SECRET}>[^'<]*)'", re.IGNORECASE),
    *RULES,
)

_DEFINITION: Final = re.compile(r"(?P<start>(?:-D)?(?P<name>\w+)=)", re.ASCII)


def shown(text: str, values: Collection[str] = ()) -> str:
    """Redact the secrets of a configuration: in elements, attributes, addresses and commands.

    Args:
        text: the configuration, or any text that quotes it.
        values: the values of secret variables, which have been expanded in it.
    """
    return without_values(masked(text, _RULES), values)


def redact_document(document: ConfigDocument) -> str:
    """Return the whole text of a configuration, redacted."""
    return shown(document.expanded_text, document.secrets)


def redact_value(name: str, value: str, values: Collection[str] = ()) -> str:
    """Redact the text of an element with a given name.

    Args:
        name: the name of the element.
        value: its text.
        values: as for `shown`.
    """
    start, end = f"<{name}>", f"</{name}>"
    return shown(f"{start}{value}{end}", values).removeprefix(start).removesuffix(end)


def redact_command_line(words: Sequence[str], values: Collection[str] = ()) -> str:
    """Return a command line as typed into a shell, redacted.

    Args:
        words: the program and its arguments.
        values: as for `shown`.
    """
    return shlex.join(shown(word, values) for word in _without_definitions(words))


def secrets(text: str) -> set[str]:
    """Return the secrets that `shown` redacts, to search for them in other texts."""
    raw = set(find_secrets(text, _RULES))
    unquoted = {secret.strip().strip("\"'") for secret in (*raw, *map(unescape, raw))}
    return unquoted - {""}


def _without_definitions(words: Sequence[str]) -> Iterator[str]:
    """Return the words of a command line, without the values of secret variables."""
    for previous, word in zip(("", *words), words, strict=False):
        match = _DEFINITION.match(word)
        is_definition = match is not None and (previous == "-D" or word.startswith("-D"))
        if match is not None and is_definition and is_secret_name(match["name"]):
            yield f"{match['start']}{HIDDEN}"
        else:
            yield word
