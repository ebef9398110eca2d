"""The interface of a session that the commands for queries and subscriptions use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
