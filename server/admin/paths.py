"""Suffixes of paths below /amps: a path may end with the requested form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FORMS: Final = ("json", "xml", "csv", "rnc")
"""Suffixes of paths."""


def split_path_format(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the path without the form, and the form; empty for a page.

    Args:
        names: the parts of the path, decoded.
    """
    if not names:
        return (), ""
    stem, _, form = names[-1].rpartition(".")
    if stem and form in FORMS:
        return (*names[:-1], stem), form
    return tuple(names), ""
