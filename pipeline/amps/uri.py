"""URIs of servers: lists of them, and the message type in them."""

from __future__ import annotations

import re

from amperage.client import ClientError, uri
from pipeline.errors import PipelineError


def with_message_type(server: str, message_type: str) -> str:
    """Return the URIs of servers for messages of a type.

    See `amperage.client.uri.with_message_type`.

    Raises:
        PipelineError: a URI is not valid.
    """
    try:
        return ",".join(
            uri.with_message_type(server_uri, message_type) for server_uri in several(server)
        )
    except ClientError as problem:
        raise PipelineError(f"server: {problem}") from None


def several(servers: str) -> list[str]:
    """Return the URIs in a comma-separated text."""
    return [server_uri.strip() for server_uri in re.split(r",(?=\s*\w+://)", servers)]
