"""What all parts of the simulation speak of."""

from __future__ import annotations

from server.storage.journal import Topic

MILLISECOND = 1000
SECOND = 1_000_000
ORDERS = Topic("json", "orders")
LOCAL = Topic("json", "local")
NOTES = Topic("", "")
