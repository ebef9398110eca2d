"""The callback for messages that have been delivered to a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from server.topics.subscriptions.client import ClientIdentity
from server.topics.subscriptions.delivery.envelope import Envelope

DeliveryWatcher = Callable[[ClientIdentity, str, Sequence[bytes], Envelope], None]
"""Processes delivered messages.

It gets the recipient, the topic's name, the bodies of the messages as they were published, and
their common properties.
"""
