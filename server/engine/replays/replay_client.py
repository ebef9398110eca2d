"""Interfaces of the client of a replay, and of the engine, for readers of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
