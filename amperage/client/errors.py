"""What can go wrong, as types: one for each thing that a caller would handle differently.

ClientError
  InvalidUriError            the text is no server URI                            ValueError
  ConnectError               no connection could be made                          ConnectionError
  ConnectionLostError        the connection ended, or the peer fell silent        ConnectionError
    NotConnectedError        ... or has not been made yet
    ProtocolError            ... because the peer sent what is no amps protocol
    GaveUpError              ... and no server could be reached any more (also a ConnectError)
  TimedOutError              no answer in time                                    TimeoutError
    PublishStoreFullError    ... or no room for another message that is not persisted yet
  CredentialsError           there is nothing to log on with, or the server is not the right one
  TlsFileError               a file with certificates or a key cannot be used     ValueError
  StoreError                 a file of a publish or bookmark store cannot be used OSError
  CommandError               the server refused a command
    MessagesRefusedError     ... publishes, as `flush` found out
    LogonError               ... the logon
      AuthenticationError, NameInUseError                                         PermissionError
    NotEntitledError                                                              PermissionError
    BadFilterError, BadRegexTopicError, InvalidTopicError, DuplicateMessageError,
    SubscriptionExistsError

On the right is which of Python's own errors they are as well. What is wrong with an argument is a
TypeError or a ValueError, as for any function.
"""

from __future__ import annotations

import copy
from typing import Final, TypeVar


class ClientError(Exception):
    """Whatever the client raises, other than for a misuse of its own functions."""


class InvalidUriError(ClientError, ValueError):
    """The text is not the URI of a server."""


class ConnectError(ClientError, ConnectionError):
    """No connection could be made: refused, unknown host, TLS failure or too slow."""


class ConnectionLostError(ClientError, ConnectionError):
    """The connection has ended, or the server has fallen silent."""


class NotConnectedError(ConnectionLostError):
    """There is no connection: `connect` was not called yet, or the client is closed."""


class ProtocolError(ConnectionLostError):
    """The server sent bytes that are not the amps protocol. The connection is unusable."""


class GaveUpError(ConnectError, ConnectionLostError):
    """No server could be reached within the limits of the back-off, or each refused the logon."""


class TimedOutError(ClientError, TimeoutError):
    """The server did not answer in time. The command may still take effect."""


class PublishStoreFullError(TimedOutError):
    """Too many messages wait to be persisted, and none was in time. The message was not taken."""


class CredentialsError(ClientError):
    """What to log on with is not to be had, or what the server shows is not what it should be."""


class TlsFileError(ClientError, ValueError):
    """A file with certificates or a key cannot be read or used."""


class StoreError(ClientError, OSError):
    """The file of a publish store or bookmark store cannot be read, written or had for oneself."""


class CommandError(ClientError):
    """The server refused a command.

    Attributes:
        command: the command's name, such as "subscribe".
        reason: the server's short phrase, such as "bad filter".
        detail: the server's explanation, where it gives one.
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
        count: how many.
        first: why, for the first of them.
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
    """The user may not do this."""


class BadFilterError(CommandError):
    """The content filter cannot be read."""


class BadRegexTopicError(CommandError):
    """The topic is not a regular expression."""


class InvalidTopicError(CommandError):
    """The topic does not exist, or cannot be used with this command."""


class DuplicateMessageError(CommandError):
    """The server already has a message of this client name and sequence number."""


class SubscriptionExistsError(CommandError):
    """The subscription id is taken, and the options do not say `replace`."""


_Error = TypeVar("_Error", bound=ClientError)


def again(first: _Error) -> _Error:
    """Copy an error that is raised more than once, in several threads or one after the other.

    An exception that is raised a second time keeps the traceback of the first, and adds to it.

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
    """Make the error for a failure acknowledgement.

    Args:
        command: the name of the refused command.
        reason: the acknowledgement's reason, compared as a whole.
        detail: the acknowledgement's explanation.

    Returns:
        An error of the type that belongs to the reason; for a logon always a `LogonError`.
    """
    reason = reason or "refused without a reason"
    kind = _BY_REASON.get(reason, CommandError)
    if command == "logon" and not issubclass(kind, LogonError):
        kind = LogonError
    return kind(command, reason, detail)
