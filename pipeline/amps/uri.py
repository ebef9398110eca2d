"""URIs of servers, for messages of one type after the other."""

from __future__ import annotations

from client import ClientError, uri
from pipeline.errors import PipelineError


def with_message_type(server: str, message_type: str) -> str:
    """The URI of a server for messages of a type, see `client.uri.with_message_type`.

    Raises:
        PipelineError: it is no URI.
    """
    try:
        return uri.with_message_type(server, message_type)
    except ClientError as problem:
        raise PipelineError(f"server: {problem}") from None
