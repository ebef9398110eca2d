"""What is secret in a text of any kind: an address, a command, a header, a sentence with one.

Each rule knows a place where credentials stand, and nothing but them is taken out: what is left
still tells what the text is about. What follows such a place and is no secret may be taken out as
well; the other way round would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

HIDDEN: Final = "********"

SECRET: Final = "secret"  # noqa: S105 - a name
"""The group of a rule that is taken out."""

_WORDS: Final = (
    r"(?:token|api[_-]?key|access[_-]?key|passw(?:or)?d|passphrase|pwd|secret|bearer"
    r"|credentials?|signature|(?<![A-Za-z])sig)"
)
"""How names end whose values nobody is to see; those of files do not."""

_HEADERS: Final = (
    r"(?:(?:Proxy-)?Authorization|(?:Set-)?Cookie"
    r"|(?:\w+-)+(?:Key|Token|Secret|Auth|Password)|ApiKey)"
)
_NO_CREDENTIALS: Final = r"(?!(?:auth\w*|tokens?|credentials?|scheme|realm|charset)\b)"
"""What `Basic` and `Bearer` are followed by in challenges and sentences."""

_USER: Final = r"(?<![\w-])(?:-[uU]|--(?:proxy-)?user)[\s=]*"
_QUOTE: Final = r"(?:\"|'|&quot;|&apos;)?"

RULES: Final = (
    # http://me:password@host, and the same without a scheme: me:password@host:9007
    re.compile(rf"\w://[^/\s:@<>\"']*:(?P<{SECRET}>[^/\s<>\"'?#]+)@"),
    re.compile(rf"(?<![\w/:.+-])[\w.+-]+:(?P<{SECRET}>[^/\s:<>\"'?#]+)@(?=[\w\[])"),
    # ?token=..., PGPASSWORD=... curl, --api-key=... and --api-key ...
    re.compile(rf"{_WORDS}={_QUOTE}(?P<{SECRET}>[^\s&;,<>\"'#]+)", re.IGNORECASE),
    re.compile(rf"(?<!\S)--?[\w-]*{_WORDS}\s+(?P<{SECRET}>[^\s\"'<>]+)", re.IGNORECASE),
    re.compile(rf"(?<!\S)--?[\w-]*{_WORDS}[\s=]+\"(?P<{SECRET}>[^\"<]+)\"", re.IGNORECASE),
    re.compile(rf"(?<!\S)--?[\w-]*{_WORDS}[\s=]+'(?P<{SECRET}>[^'<]+)'", re.IGNORECASE),
    # curl -u me:password
    re.compile(rf"{_USER}[^\s:\"'<>]*:(?P<{SECRET}>[^\s\"'<>]+)"),
    re.compile(rf"{_USER}\"[^:\"<>]*:(?P<{SECRET}>[^\"<]+)\""),
    re.compile(rf"{_USER}'[^:'<>]*:(?P<{SECRET}>[^'<]+)'"),
    # X-Api-Key: ..., to the end of the header
    re.compile(
        rf"(?<![\w-]){_HEADERS}\s*:\s*(?P<{SECRET}>[^\s\"'<>](?:(?!&quot;|&apos;)[^\r\n\"'<>])*)",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:Bearer|Basic)\s+{_NO_CREDENTIALS}(?P<{SECRET}>[\w.~+/-]+=*)"),
)

_SECRET_NAME: Final = re.compile(
    r"pass|secret|token|credential|(?:^|_)pw(?:_|$)|_pwd|pwd_"
    r"|(?:api|access|private|encryption|signing|auth)_?key|^key$",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable of this name is taken for a secret; that of PWD is not."""
    return _SECRET_NAME.search(name) is not None


def masked(text: str, rules: Sequence[re.Pattern[str]] = RULES) -> str:
    """Replace what rules find secret in a text."""
    for rule in rules:
        text = rule.sub(_without_secret, text)
    return text


def found(text: str, rules: Iterable[re.Pattern[str]] = RULES) -> Iterator[str]:
    """What each of the rules finds secret in a text."""
    for rule in rules:
        for match in rule.finditer(text):
            yield match[SECRET]


def _without_secret(match: re.Match[str]) -> str:
    start, end = (position - match.start() for position in match.span(SECRET))
    return f"{match[0][:start]}{HIDDEN}{match[0][end:]}"
