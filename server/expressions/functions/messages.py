"""Functions of the current message and of the client that published it.

They have no implementation of their own: compiled code reads the attribute named here from the
message context.
"""

from __future__ import annotations

from typing import Final

from server.expressions.functions.registry import Function

_MESSAGE = "The current message"
_CLIENT = "The client"

FUNCTIONS: Final = (
    Function(
        "MESSAGE_SIZE", _MESSAGE, "The size of the body in bytes.", context_attribute="message_size"
    ),
    Function("CORRELATION_ID", _MESSAGE, "The correlation id.", context_attribute="correlation_id"),
    Function(
        "LAST_UPDATED",
        _MESSAGE,
        "When this instance last updated the record, as a timestamp; "
        "on a subscription, the current time.",
        context_attribute="last_updated",
    ),
    Function(
        "LAST_READ",
        _MESSAGE,
        "When this instance last read the record for a query, as a timestamp; "
        "always NULL here, where reading leaves no trace.",
        context_attribute="last_read",
        is_deterministic=False,
    ),
    Function(
        "LAST_LEASED",
        _MESSAGE,
        "When the queue message was last leased, as a timestamp.",
        context_attribute="last_leased",
    ),
    Function(
        "LEASE_COUNT",
        _MESSAGE,
        "How often the queue message was leased.",
        context_attribute="lease_count",
    ),
    Function(
        "BOOKMARK", _MESSAGE, "The bookmark; NULL in SOW queries.", context_attribute="bookmark"
    ),
    Function("TOPIC_NAME", _MESSAGE, "The topic.", context_attribute="topic_name"),
    Function("SOW_KEY", _MESSAGE, "The SOW key, as a text.", context_attribute="sow_key"),
    Function(
        "SOW_KEY_HASH", _MESSAGE, "The SOW key, as an integer.", context_attribute="sow_key_hash"
    ),
    Function(
        "CLIENT_NAME",
        _CLIENT,
        "The name the client logged on with.",
        context_attribute="client_name",
    ),
    Function(
        "CLIENT_VERSION",
        _CLIENT,
        "The version the client logged on with.",
        context_attribute="client_version",
    ),
    Function("USER", _CLIENT, "The authenticated user.", context_attribute="user"),
    Function(
        "CONNECTION_NAME",
        _CLIENT,
        "The name of the client's connection.",
        context_attribute="connection_name",
    ),
    Function(
        "REMOTE_ADDRESS",
        _CLIENT,
        "The address and port the client connected from.",
        context_attribute="remote_address",
    ),
)
"""AMPS User Guide: Message Functions, Client Functions.

NULL for a property that the message or the client does not have.
"""
