"""Redaction of secrets in any text: an address, a command, a header, a sentence that has one.

Each rule matches a place where credentials occur, and only they are removed: the rest still tells
the subject of the text. A value at such a place that is no secret may be removed as well;
the opposite error would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Final

HIDDEN: Final = "********"

SECRET: Final = "secret"  # noqa: S105 - a name
"""The group of a rule that is redacted."""

_WORDS: Final = (
    r"(?:token|api[_-]?key|access[_-]?key|passw(?:or)?d|passphrase|pwd|secret|bearer"
    r"|credentials?|signature|(?<![A-Za-z])sig)"
)
"""The endings of names of secret values; names of files do not end so."""

_HEADERS: Final = (
    r"(?:(?:Proxy-)?Authorization|(?:Set-)?Cookie"
    r"|(?:\w+-)+(?:Key|Token|Secret|Auth|Password)|ApiKey)"
)
_NO_CREDENTIALS: Final = r"(?!(?:auth\w*|tokens?|credentials?|scheme|realm|charset)\b)"
"""Words that follow `Basic` and `Bearer` in challenges and sentences."""

_USER: Final = r"(?<![\w-])(?:-[uU]|--(?:proxy-)?user)[\s=]*"
_OPTION: Final = (
    r"(?<![\w.-])(?:(?:sshpass|mysql\w*|mariadb[\w-]*|mongo\w*)\b[^|;&\n]{0,500}?\s-p"
    r"|redis-cli\b[^|;&\n]{0,500}?\s-a|ldap\w+\b[^|;&\n]{0,500}?\s-w)\s*"
)
"""Options of programs that take a password, even one that looks like a port or a path."""

_QUOTE: Final = r"(?:\"|'|&quot;|&apos;)?"

_USERINFO: Final = re.compile(r"(?<=://)[^/?#]*@")

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
    # sshpass -p password; mkdir -p directory and ssh -p 22 differ from it only in their values
    re.compile(rf"{_OPTION}(?P<{SECRET}>[^\s\"'<>]+)"),
    re.compile(rf"(?:{_OPTION}|(?<!\S)-p[\s=]+)\"(?P<{SECRET}>[^\"<]+)\""),
    re.compile(rf"(?:{_OPTION}|(?<!\S)-p[\s=]+)'(?P<{SECRET}>[^'<]+)'"),
    re.compile(
        rf"(?<!\S)-p[\s=]+(?P<{SECRET}>(?!\d[\d.:]*(?!\S)|[-./~$|;]|&(?:\s|&|amp;))[^\s\"'<>]+)"
    ),
    # X-Api-Key: ..., to the end of the header
    re.compile(
        rf"(?<![\w-]){_HEADERS}\s*:\s*(?P<{SECRET}>[^\s\"'<>](?:(?!&quot;|&apos;)[^\r\n\"'<>])*)",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:Bearer|Basic)\s+{_NO_CREDENTIALS}(?P<{SECRET}>[\w.~+/-]+=*)"),
)

_CUT: Final = re.compile(r"'[^\n]{1,60}?(?=\.\.\.')")
"""A value of which a sentence quotes the beginning only, see `units.quoted`."""

_SECRET_NAME: Final = re.compile(
    r"pass|secret|token|credential|(?:^|_)pw(?:_|$)|_pwd|pwd_"
    r"|(?:api|access|private|encryption|signing|auth)_?key|^key$",
    re.IGNORECASE,
)

_MIN_SECRET_LENGTH: Final = 4
"""Minimum length of a value to search for: shorter ones are parts of many words."""


def is_secret_name(name: str) -> bool:
    """Return true if a variable of this name is assumed to be secret; PWD is not."""
    return _SECRET_NAME.search(name) is not None


def without_userinfo(url: str) -> str:
    """Return a URL without the user and the password that it may have before the host."""
    return _USERINFO.sub("", url)


def masked(text: str, rules: Sequence[re.Pattern[str]] = RULES) -> str:
    """Redact the matches of rules in a text."""
    for rule in rules:
        text = rule.sub(_without_secret, text)
    return text


def find_secrets(text: str, rules: Iterable[re.Pattern[str]] = RULES) -> Iterator[str]:
    """Return the secrets that each of the rules finds in a text."""
    for rule in rules:
        for match in rule.finditer(text):
            yield match[SECRET]


def without_values(text: str, values: Collection[str]) -> str:
    """Redact values that are known to be secret; names of elements stay.

    Args:
        text: any text: a configuration, or a sentence that quotes it, possibly shortened.
        values: the values of secret variables.
    """
    spellings = {
        spelling
        for value in values
        for spelling in _spellings(value)
        if len(value) >= _MIN_SECRET_LENGTH
    }
    if not spellings:
        return text
    longest_first = sorted(spellings, key=len, reverse=True)
    either = re.compile(rf"(</?[\w:.-]+)|{'|'.join(map(re.escape, longest_first))}")
    text = either.sub(lambda match: match[1] or HIDDEN, text)
    return _CUT.sub(lambda match: _without_beginning(match[0], spellings), text)


def _spellings(value: str) -> Iterator[str]:
    """Return the forms of a value: in a text, in XML, and in a sentence of one line."""
    yield value
    yield escape(value, quote=False)
    yield escape(value)
    yield " ".join(value.split())


def _without_beginning(text: str, values: Iterable[str]) -> str:
    """Redact the end of a text, if one of the values begins with it."""
    lengths = range(len(text), _MIN_SECRET_LENGTH - 1, -1)
    for value in values:
        for length in lengths:
            if text.endswith(value[:length]) and len(value) > length:
                return f"{text[:-length]}{HIDDEN}"
    return text


def _without_secret(match: re.Match[str]) -> str:
    start, end = (position - match.start() for position in match.span(SECRET))
    return f"{match[0][:start]}{HIDDEN}{match[0][end:]}"
