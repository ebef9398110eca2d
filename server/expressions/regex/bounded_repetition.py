"""Rewrites regular expressions to equivalent ones with short steps.

PCRE2 limits the steps of a search, and counts `.*` as one step for a text of any length. In the
form that is made here a repetition consists of blocks, each of which is a step:

    .*       (?:.{64})*.{0,63}
    [ab]++   [ab](?:[ab]{64})*+[ab]{0,63}+

Both match the same characters in the same order, also when they backtrack.

Source: pcre2pattern(3), Repetition.
"""

from __future__ import annotations

import re
from typing import Final

_BLOCK: Final = 64

_PART: Final = re.compile(
    rb"""(?P<atom>
          \\ (?: [dDwWsShHvVNnrtfae] | x[0-9A-Fa-f]{2} | [!-/:-@\[-`{-~] )
        | \[ \^? \]? (?: \[:[^\]]*:\] | \\[^QE] | [^\]\\[] | \[(?!:) )* \]
        | [^\\()\[|*+?{^$] )
      (?: (?P<count> [*+] | \{[0-9]{1,2},\} ) (?P<kind> [?+]? ) )?
    | \( (?: \?(?: [:=!>] | <[=!] | [is]+[:)] ) | (?![?*]) )
    | [)|^$?+*] | \{[0-9]{1,2}(?:,[0-9]{0,2})?\} | \\[bBAzZ]""",
    re.DOTALL | re.VERBOSE,
)


def bound_repetitions(source: bytes) -> bytes | None:
    """Return the form of an expression with short steps; None if it has unknown syntax.

    Args:
        source: an expression that PCRE2 accepts.
    """
    parts: list[bytes] = []
    end = 0
    while end < len(source):
        part = _PART.match(source, end)
        if part is None:
            return None
        end = part.end()
        parts.append(_in_blocks(part) if part["count"] else part[0])
    return b"".join(parts)


def _in_blocks(part: re.Match[bytes]) -> bytes:
    atom, count, kind = part["atom"], part["count"], part["kind"]
    required = {b"*": b"", b"+": atom}.get(count) if len(count) == 1 else atom + count[:-2] + b"}"
    if kind == b"?" or required is None:
        return part[0]
    blocks = b"(?:%b{%d})*%b%b{0,%d}%b" % (atom, _BLOCK, kind, atom, _BLOCK - 1, kind)
    return b"(?:" + required + blocks + b")"
