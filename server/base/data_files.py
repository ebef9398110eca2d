"""How files are made that hold messages: readable for their owner and group, for nobody else.

The umask takes away more, but a lax one opens nothing.
"""

from __future__ import annotations

from typing import Final

MODE: Final = 0o640
"""Permissions of journals, SOW files, tables of publishers and files of chained keys."""
