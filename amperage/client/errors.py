"""The errors of the client: a type for each condition that callers may handle differently.

ClientError
  InvalidUriError            the text is not a server URI                         ValueError
  ConnectError               the connection cannot be established                 ConnectionError
  ConnectionLostError        the connection ended, or the peer fell silent        ConnectionError
    NotConnectedError        ... or is not established yet
    ProtocolError            ... because the peer sent bytes that are not the amps protocol
    GaveUpError              ... and no server can be reached any more (also a ConnectError)
  SlowStreamError            more messages wait in a stream than it may have
  TimedOutError              no answer in time                                    TimeoutError
    PublishStoreFullError    ... or no room for another message in the publish store
  CredentialsError           no credentials are available, or the server failed to authenticate
  TlsFileError               a file with certificates or a key cannot be used     ValueError
  EncodeError                the encoder cannot encode a value to publish         ValueError
  DecodeError                the decoder cannot decode a message's body           ValueError
  StoreError                 a file of a publish or bookmark store cannot be used OSError
  CommandError               the server refused a command
    MessagesRefusedError     ... publishes, as reported by `flush`
    LogonError               ... the logon
      AuthenticationError, NameInUseError                                         PermissionError
    NotEntitledError                                                              PermissionError
    BadFilterError, BadRegexTopicError, InvalidTopicError, DuplicateMessageError,
    SubscriptionExistsError

The right column has the built-in error that is also a base class. An invalid argument is a
TypeError or a ValueError, as for any function.
"""

from __future__ import annotations

import copy
from typing import Final, TypeVar


class ClientError(Exception):
    """The base of all errors of the client, except TypeError and ValueError for its arguments."""


class InvalidUriError(ClientError, ValueError):
    """The text is not the URI of a server."""


class ConnectError(ClientError, ConnectionError):
    """The connection could not be established: refused, unknown host, TLS failure or timeout."""


class ConnectionLostError(ClientError, ConnectionError):
    """The connection has ended, or the server has fallen silent."""


class NotConnectedError(ConnectionLostError):
    """There is no connection: `connect` was not called, or the client is closed."""


class ProtocolError(ConnectionLostError):
    """The server sent bytes that are not the amps protocol. The connection is unusable."""


class GaveUpError(ConnectError, ConnectionLostError):
    """No server could be reached within the limits of the back-off, or each refused the logon."""


class TimedOutError(ClientError, TimeoutError):
    """The server did not answer in time. The command may still take effect."""


class PublishStoreFullError(TimedOutError):
    """The publish store is full, and had no room within the timeout. The message is not stored."""


class CredentialsError(ClientError):
    """No credentials are available, or the server failed to authenticate itself."""


class TlsFileError(ClientError, ValueError):
    """A file with certificates or a key cannot be read or used."""


class StoreError(ClientError, OSError):
    """The file of a publish store or bookmark store cannot be read, written or locked."""


class SlowStreamError(ClientError):
    """More messages than `max_waiting` waited in a stream, so that its subscription has ended."""


class EncodeError(ClientError, ValueError):
    """The encoder cannot encode a value that is to be published. Nothing was published."""


class DecodeError(ClientError, ValueError):
    """The decoder cannot decode the body of a message."""


class CommandError(ClientError):
    """The server refused a command.

    Attributes:
        command: the command's name, such as "subscribe".
        reason: the server's short phrase, such as "bad filter".
        detail: the server's explanation; None if there is none.
    """

    def __init__(self, command: str, reason: str, detail: str | None = None) -> None:
        super().__init__(f"{command}: {reason}" + (f": {detail}" if detail else ""))
        self.command = command
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.command, self.reason, self.detail)


class MessagesRefusedError(CommandError):
    """The server refused messages that were published since the last `flush`.

    Attributes:
        count: the number of refused messages.
        first: the error of the first of them.
    """

    def __init__(self, count: int, first: CommandError) -> None:
        noun = "message was" if count == 1 else "messages were"
        super().__init__("publish", first.reason, first.detail)
        self.args = (f"{count} {noun} refused; the first: {first}",)
        self.count = count
        self.first = first

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.count, self.first)


class LogonError(CommandError):
    """The server refused the logon."""


class AuthenticationError(LogonError, PermissionError):
    """The user is unknown, or the password is wrong."""


class NameInUseError(LogonError):
    """Another connection of another user has this client name."""


class NotEntitledError(CommandError, PermissionError):
    """The user is not entitled to the command."""


class BadFilterError(CommandError):
    """The content filter is invalid."""


class BadRegexTopicError(CommandError):
    """The topic is not a valid regular expression."""


class InvalidTopicError(CommandError):
    """The topic does not exist, or cannot be used with this command."""


class DuplicateMessageError(CommandError):
    """The server already has a message with this client name and sequence number."""


class SubscriptionExistsError(CommandError):
    """The subscription id is in use, and the option `replace` is not given."""


_Error = TypeVar("_Error", bound=ClientError)


def copy_error(first: _Error) -> _Error:
    """Copy an error, to raise it more than once, in several threads or one after the other.

    Without the copy, an exception raised twice would accumulate both tracebacks.

    Args:
        first: the error.

    Returns:
        The copy, with the same cause and without a traceback.
    """
    error = copy.copy(first)
    error.__cause__ = first.__cause__
    return error


_BY_REASON: Final[dict[str, type[CommandError]]] = {
    "auth failure": AuthenticationError,
    "bad filter": BadFilterError,
    "bad regex topic": BadRegexTopicError,
    "duplicate": DuplicateMessageError,
    "invalid topic": InvalidTopicError,
    "name in use": NameInUseError,
    "not entitled": NotEntitledError,
    "subscription already exists": SubscriptionExistsError,
}


def command_error(command: str, reason: str | None, detail: str | None) -> CommandError:
    """Return the error for a failure acknowledgement.

    Args:
        command: the name of the refused command.
        reason: the acknowledgement's reason, compared as a whole.
        detail: the acknowledgement's explanation.

    Returns:
        An error of the type for the reason; for a logon always a `LogonError`.
    """
    reason = reason or "refused without a reason"
    kind = _BY_REASON.get(reason, CommandError)
    if command == "logon" and not issubclass(kind, LogonError):
        kind = LogonError
    return kind(command, reason, detail)
