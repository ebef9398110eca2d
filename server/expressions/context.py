"""What expressions can ask about a message besides its fields."""

from __future__ import annotations

from typing import Final


class MessageContext:
    """Everything is NULL until it is set; making one costs next to nothing.

    Compiled expressions read the attributes that their functions name, and nothing else. Whoever
    evaluates sets what is known, or derives a class whose properties find a value when asked.

    Attributes:
        message_size: bytes of the body.
        correlation_id: the message's correlation id.
        last_updated: seconds since 1970.
        last_read: seconds since 1970.
        last_leased: seconds since 1970.
        lease_count: how often a queue message was leased.
        bookmark: the message's bookmark.
        topic_name: the topic, the underlying one for views and queues.
        sow_key: the SOW key.
        sow_key_hash: the SOW key as an unsigned 64-bit integer.
        client_name: who published: the name given at logon.
        client_version: the version given at logon.
        user: the authenticated user.
        connection_name: the name of the connection.
        remote_address: address and port.
    """

    message_size: int | None = None
    correlation_id: str | None = None
    last_updated: float | None = None
    last_read: float | None = None
    last_leased: float | None = None
    lease_count: int | None = None
    bookmark: str | None = None
    topic_name: str | None = None
    sow_key: str | None = None
    sow_key_hash: int | None = None
    client_name: str | None = None
    client_version: str | None = None
    user: str | None = None
    connection_name: str | None = None
    remote_address: str | None = None


NO_CONTEXT: Final = MessageContext()
"""For evaluations that have no message: every function of the message is NULL."""
