"""Connections to the server, and what it refuses, told by the option that is to blame."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from client import (
    AuthenticationError,
    BadFilterError,
    BadRegexTopicError,
    Client,
    ClientError,
    CommandError,
    ConnectError,
    ConnectionLostError,
    InvalidTopicError,
    LogonError,
    NotEntitledError,
    TimedOutError,
)
from pipeline.amps.options import AmpsOptions
from pipeline.errors import PipelineError

_BY_TYPE: Final[tuple[tuple[type[ClientError], str], ...]] = (
    (AuthenticationError, "server"),
    (LogonError, "server"),
    (BadFilterError, "filter"),
    (BadRegexTopicError, "topic"),
    (InvalidTopicError, "topic"),
    (NotEntitledError, "topic"),
    (ConnectError, "server"),
    (ConnectionLostError, "server"),
    (TimedOutError, "server"),
)
_BY_REASON: Final = {
    "invalid orderby": "orderby",
    "invalid bookmark": "bookmark",
    "bookmark not found": "bookmark",
    "invalid option": "options",
    "invalid batch size": "batch_size",
}


@contextmanager
def connected(options: AmpsOptions, role: str) -> Iterator[Client]:
    """A session with the server, closed in the end.

    Args:
        options: where, and as whom.
        role: what the connection is for, as part of its name.

    Raises:
        PipelineError: there is none to be had, or what was done with it failed.
    """
    name = f"{options.client_name or 'spark'}-{role}-{uuid.uuid4().hex[:12]}"
    with blaming(options), Client(name, timeout=options.timeout) as client:
        client.connect(options.server)
        client.logon()
        yield client


@contextmanager
def blaming(options: AmpsOptions) -> Iterator[None]:
    """Makes the client's errors say which option is to blame."""
    try:
        yield
    except ClientError as error:
        raise explained(options, error) from error


def explained(options: AmpsOptions, error: ClientError) -> PipelineError:
    """An error of the client's, with the option that is to blame."""
    option = next((name for kind, name in _BY_TYPE if isinstance(error, kind)), None)
    if isinstance(error, CommandError):
        option = _BY_REASON.get(error.reason, option)
    if option is None:
        return PipelineError(f"server {options.server}: {error}")
    value = str(getattr(options, option))
    return PipelineError(f"option {option}={value!r}: {error}")
