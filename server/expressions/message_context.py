"""The properties of a message that expressions can read besides its fields."""

from __future__ import annotations

from typing import Final


class MessageContext:
    """The context of a message. Attributes are NULL until they are set; creation costs very little.

    Compiled expressions read the attributes that their functions name, and no others. The caller
    sets the known attributes, or derives a class whose properties compute a value on demand.

    Attributes:
        message_size: bytes of the body.
        correlation_id: the message's correlation id.
        last_updated: seconds since 1970.
        last_read: seconds since 1970.
        last_leased: seconds since 1970.
        lease_count: number of leases of a queue message.
        bookmark: the message's bookmark.
        topic_name: the topic, the underlying one for views and queues.
        sow_key: the SOW key.
        sow_key_hash: the SOW key as an unsigned 64-bit integer.
        client_name: the publisher's name, as given at logon.
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
"""For evaluations without a message: every function of the message is NULL."""
