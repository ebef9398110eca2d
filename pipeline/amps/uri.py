"""URIs of servers, for messages of one type after the other."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from client import ClientError
from client.uri import parse_uri
from pipeline.errors import PipelineError

_MESSAGE_TYPE = "message_type"


def with_message_type(server: str, message_type: str) -> str:
    """The URI of a server for messages of a type.

    Args:
        server: its URI, with another type or none: `tcp://host:port/amps`.
        message_type: the type.

    Raises:
        PipelineError: it is no URI.
    """
    try:
        given = parse_uri(server).message_type
    except ClientError as problem:
        raise PipelineError(f"server: {problem}") from None
    parts = urlsplit(server)
    if parts.scheme == "unix":
        others = [one for one in parse_qsl(parts.query) if one[0] != _MESSAGE_TYPE]
        return urlunsplit(parts._replace(query=urlencode([*others, (_MESSAGE_TYPE, message_type)])))
    path = parts.path.rstrip("/")
    if given is not None:
        path = path.rpartition("/")[0]
    return urlunsplit(parts._replace(path=f"{path or '/amps'}/{message_type}"))
