"""What all parts of the simulation speak of."""

from __future__ import annotations

from server.storage.journal import JournalTopic

MILLISECOND = 1000
SECOND = 1_000_000
ORDERS = JournalTopic("json", "orders")
LOCAL = JournalTopic("json", "local")
NOTES = JournalTopic("", "")
