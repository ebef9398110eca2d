"""The configuration as it is shown: the text that was read, without passwords.

Programs look for elements in it as its author spelled them, so it is not written anew.
"""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = "********"

_NAMES: Final = r"(?:\w[\w.-]*)?(?:Password|Passphrase|Secret|Token|ApiKey)"
"""How the names of elements end whose text nobody is to see; those of files do not."""

_ELEMENT: Final = re.compile(
    rf"(<({_NAMES})(?:\s[^<>]*)?>).*?(</\2\s*>)", re.DOTALL | re.IGNORECASE
)
_ATTRIBUTE: Final = re.compile(rf"(\s{_NAMES}\s*=\s*)(\"[^\"<]*\"|'[^'<]*')", re.IGNORECASE)
_IN_ADDRESS: Final = re.compile(r"(\w://[^/\s:@<>\"']*:)[^/\s@<>\"']+(@)")


def shown(text: str) -> str:
    """Replace what is secret in a configuration: in elements, attributes and addresses."""
    text = _ELEMENT.sub(rf"\g<1>{_HIDDEN}\g<3>", text)
    text = _ATTRIBUTE.sub(rf'\g<1>"{_HIDDEN}"', text)
    return _IN_ADDRESS.sub(rf"\g<1>{_HIDDEN}\g<2>", text)
