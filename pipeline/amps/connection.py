"""Connections to the server, and its errors, which name the option at fault."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from amperage.client import (
    NOW,
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
    ServerUri,
    TimedOutError,
)
from amperage.client.block_client import BlockClient
from amperage.client.blocking_commands import BlockingCommands
from amperage.wire.header import Header
from pipeline.amps.options import AmpsOptions
from pipeline.errors import (
    DataLossError,
    NotPermittedError,
    OptionError,
    PipelineError,
    ServerUnreachableError,
    option_error,
)

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
NOT_FOUND: Final = "bookmark not found"
"""The server's reason for refusing a replay from a message that its log does not have."""
_BY_REASON: Final = {
    "invalid orderby": "orderby",
    "invalid bookmark": "bookmark",
    NOT_FOUND: "bookmark",
    "invalid option": "options",
    "invalid batch size": "batch_size",
}


UNREACHABLE_ERRORS: Final = (ConnectError, ConnectionLostError, TimedOutError)
"""Errors that a client raises when the server is unreachable or the connection is lost."""

_KINDS: Final[tuple[tuple[tuple[type[ClientError], ...], type[PipelineError]], ...]] = (
    (UNREACHABLE_ERRORS, ServerUnreachableError),
    ((AuthenticationError, LogonError, NotEntitledError), NotPermittedError),
)

_RETRY_INTERVAL_S: Final = 0.2
"""Seconds between two attempts to reach a server."""


@contextmanager
def session(options: AmpsOptions, role: str, *, patient: bool = False) -> Iterator[BlockClient]:
    """Open a session with the server, and close it at the end.

    Args:
        options: the server and the user.
        role: the purpose of the connection, as a part of its name.
        patient: see `log_on`.

    Raises:
        ClientError: no session can be opened.
    """
    name = f"{options.client_name or 'spark'}-{role}-{uuid.uuid4().hex[:12]}"
    with new_client(options, name) as client:
        log_on(client, options, patient=patient)
        yield client


def new_client(options: AmpsOptions, name: str) -> BlockClient:
    """Return a client that opens connections as configured by the options.

    Raises:
        TlsFileError: a file with certificates cannot be used here.
    """
    login = options.login
    return BlockClient(
        name,
        timeout=options.timeout,
        authenticator=login.authenticator(),
        ssl_context=login.ssl_context(),
    )


@contextmanager
def connected(
    options: AmpsOptions, role: str, *, patient: bool = False, place: str | None = None
) -> Iterator[BlockClient]:
    """Open a session with errors that name the option at fault; see `session` and `explained`.

    Raises:
        PipelineError: no session can be opened, or a command failed.
    """
    with convert_client_errors(options, place), session(options, role, patient=patient) as client:
        yield client


@contextmanager
def convert_client_errors(options: AmpsOptions, place: str | None = None) -> Iterator[None]:
    """Convert the client's errors to ones that name the option at fault; see `explained`."""
    try:
        yield
    except ClientError as error:
        raise explained(options, error, place) from None


def log_on(
    client: Client, options: AmpsOptions, *, patient: bool = False, logon_options: str | None = None
) -> Header:
    """Connect to the first server that can be reached, and open the session.

    Args:
        client: a client without connection.
        options: the servers.
        patient: whether to wait for unavailable servers, as tasks do: Spark would retry the task at
            once, and give up soon.
        logon_options: the options field of the logon.

    Returns:
        The header of the acknowledgement.

    Raises:
        ClientError: no session can be opened.
    """
    deadline = time.monotonic() + (options.timeout if patient else 0.0)
    *others, last = options.servers
    while True:
        for server in others:
            with suppress(*UNREACHABLE_ERRORS):
                return _log_on_at(client, server, logon_options)
        try:
            return _log_on_at(client, last, logon_options)
        except UNREACHABLE_ERRORS:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_INTERVAL_S)


class RetryPause:
    """The pause between two attempts to reach a server, until it is unavailable for too long."""

    def __init__(self, options: AmpsOptions) -> None:
        self._options = options
        self._unreachable_since_s: float | None = None

    def reset(self) -> None:
        """Note that the server has been reached."""
        self._unreachable_since_s = None

    def wait(self, error: ClientError) -> None:
        """Wait before the next attempt, after one has failed with an error.

        Raises:
            PipelineError: the server has been unavailable for longer than the option `timeout`.
        """
        now = time.monotonic()
        self._unreachable_since_s = self._unreachable_since_s or now
        if now - self._unreachable_since_s > self._options.timeout:
            raise explained(self._options, error) from None
        time.sleep(_RETRY_INTERVAL_S)


def _log_on_at(client: Client, server: ServerUri, logon_options: str | None) -> Header:
    client.connect(server)
    return client.logon(options=logon_options)


def require_log(
    client: BlockingCommands, topic: str, hint: str = "", *, literal: bool = False
) -> None:
    """Check that a topic is in the transaction log.

    A server accepts the option `bookmark_not_found` for replays only. For a regular expression it
    is enough that there is a log.

    Args:
        client: a session.
        topic: the topic.
        hint: advice for the error message.
        literal: whether the topic is a name, not a regular expression.

    Raises:
        PipelineError: it is not in the log.
        ClientError: the client cannot subscribe to it.
    """
    options = "bookmark_not_found=fail" + (",non_regex_topic" if literal else "")
    try:
        stream = client.subscribe(topic, bookmark=NOW, options=options)
    except CommandError as error:
        if error.reason != "invalid option":
            raise
        raise option_error(
            "topic", topic, f"it is not in the server's TransactionLog{hint}"
        ) from None
    stream.unsubscribe()


def explained(options: AmpsOptions, error: ClientError, place: str | None = None) -> PipelineError:
    """Return an error of the client with the option at fault.

    Args:
        options: the options of the read or write.
        error: the error.
        place: the place in the log where a stream resumes; None if it has none.
    """
    if (
        isinstance(error, CommandError)
        and error.reason == NOT_FOUND
        and place not in (None, options.bookmark)
    ):
        return data_loss(options, place)
    option = next((name for kind, name in _BY_TYPE if isinstance(error, kind)), None)
    if isinstance(error, CommandError):
        option = _BY_REASON.get(error.reason, option)
    if option is None:
        return PipelineError(f"server {options.server}: {error}")
    kind = next((kind for of, kind in _KINDS if isinstance(error, of)), OptionError)
    return option_error(option, getattr(options, option), str(error), kind)


def data_loss(options: AmpsOptions, place: str, lost: str = "") -> PipelineError:
    """Return the error of a stream that resumes at a place that the log does not have any more.

    Args:
        options: the options of the stream.
        place: the place where it resumes.
        lost: the lost part, as far as the server reports it.
    """
    if lost:
        what = (
            f"the transaction log has lost messages after {place}, the position of this stream:"
            f" {lost}"
        )
    else:
        what = (
            f"the transaction log does not contain {place}, the position of this stream: journal"
            " files have been removed since, the log was restored from a backup or begun anew, or"
            f" this is another server; messages of {options.read_topic!r} may be missing"
        )
    return DataLossError(
        f"{what}; restore the journals, begin with a new checkpoint, or set the option"
        " fail_on_data_loss=false to continue without the missing messages"
    )
