"""A client of the amps protocol: one sans-I/O core, a blocking and an asyncio shell.

with Client("pricing") as client:
    client.connect("tcp://localhost:9007/amps/json")
    client.logon()
    client.publish("orders", b'{"id": 1, "qty": 5}')
    for message in client.subscribe("orders", filter="/qty > 3"):
        print(message.text)
"""

from client.aio import AsyncClient, AsyncMessageStream
from client.authentication import Authenticator, Credentials, PasswordAuthenticator
from client.blocking import Client, MessageStream
from client.errors import (
    AuthenticationError,
    BadFilterError,
    BadRegexTopicError,
    ClientError,
    CommandError,
    ConnectError,
    ConnectionLostError,
    DuplicateMessageError,
    InvalidTopicError,
    InvalidUriError,
    LogonError,
    NameInUseError,
    NotEntitledError,
    ProtocolError,
    SubscriptionExistsError,
    TimedOutError,
)
from client.message import Message
from client.uri import ServerUri, parse_uri

__all__ = [
    "AsyncClient",
    "AsyncMessageStream",
    "AuthenticationError",
    "Authenticator",
    "BadFilterError",
    "BadRegexTopicError",
    "Client",
    "ClientError",
    "CommandError",
    "ConnectError",
    "ConnectionLostError",
    "Credentials",
    "DuplicateMessageError",
    "InvalidTopicError",
    "InvalidUriError",
    "LogonError",
    "Message",
    "MessageStream",
    "NameInUseError",
    "NotEntitledError",
    "PasswordAuthenticator",
    "ProtocolError",
    "ServerUri",
    "SubscriptionExistsError",
    "TimedOutError",
    "parse_uri",
]
