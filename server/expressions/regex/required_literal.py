"""Finds a literal text that every match of a regular expression contains.

A substring search is far quicker than a regular expression, and texts can be indexed. The needle is
a run of characters that stands outside of all groups, and that no quantifier makes optional. An
expression with options, verbs or alternatives outside of groups counts as one without a needle, and
so does one with syntax that this module does not support.

Source: pcre2pattern(3).
"""

from __future__ import annotations

import re
from typing import Final

_MAX_PATTERN_LENGTH: Final = 1024
"""Maximum length of an expression that is analysed, in characters."""

_PART: Final = re.compile(
    r"""(?P<literal> [\w/:;,=@%&<>"'~`!#}\]\ -]+ )
    | (?P<count> [?*] | \{[0-9, ]*\} )            # what stands before may be missing
    | (?P<group> \( (?![?*]) ) | (?P<end> \) )
    | \\ (?P<escaped> [!-/:-@\[-`{-~] )
    | (?P<other> [.^$+{] | [^\x00-\x7f] | \\[dDwWsSbBAzZhHvVRX]
        | \[ \^? \]? (?: \[:[^\]]*:\] | \\. | [^\]\\] )* \] )
    | (?P<alternative> \| )""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)


def needle(pattern: str) -> str:
    """Return the longest needle, in ASCII; an empty text if there is none.

    Args:
        pattern: an expression that PCRE2 accepts.
    """
    if len(pattern) > _MAX_PATTERN_LENGTH:
        return ""
    literals = [""]
    depth = end = 0
    for part in _PART.finditer(pattern):
        kind, start, end = part.lastgroup, end, part.end()
        if part.start() != start:
            return ""
        depth += (kind == "group") - (kind == "end")
        if kind == "alternative" and not depth:
            return ""
        if kind in ("literal", "escaped") and not depth:
            literals[-1] += part[kind]
            continue
        if kind == "count":
            literals[-1] = literals[-1][:-1]
        literals.append("")
    return max(literals, key=len) if end == len(pattern) else ""
