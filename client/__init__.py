"""A client of the amps protocol: one sans-I/O core, a blocking and an asyncio shell.

with Client("pricing") as client:
    client.connect("tcp://localhost:9007/amps/json")
    client.logon()
    client.publish("orders", b'{"id": 1, "qty": 5}')
    for message in client.subscribe("orders", filter="/qty > 3"):
        print(message.text)
"""

from client.aio import AsyncClient
from client.aio_stream import AsyncMessageStream
from client.authentication import (
    Authenticator,
    Credentials,
    MutualAuthenticator,
    PasswordAuthenticator,
    SecretAuthenticator,
)
from client.backoff import Backoff
from client.blocking import Client
from client.blocking_stream import MessageStream
from client.bookmarks import MOST_RECENT, BookmarkStorage, BookmarkStore, BookmarkTrail
from client.errors import (
    AuthenticationError,
    BadFilterError,
    BadRegexTopicError,
    ClientError,
    CommandError,
    ConnectError,
    ConnectionLostError,
    CredentialsError,
    DuplicateMessageError,
    GaveUpError,
    InvalidTopicError,
    InvalidUriError,
    LogonError,
    MessagesRefusedError,
    NameInUseError,
    NotConnectedError,
    NotEntitledError,
    ProtocolError,
    PublishStoreFullError,
    StoreError,
    SubscriptionExistsError,
    TimedOutError,
    TlsFileError,
)
from client.file_bookmark_store import FileBookmarkStore
from client.file_publish_store import FilePublishStore
from client.ha import HAClient
from client.ha_aio import AsyncHAClient
from client.kerberos import KerberosAuthenticator
from client.message import Message
from client.publish_store import PublishStorage, PublishStore, StoredMessage
from client.secrets import SecretCommand, SecretFile, SecretSource, SecretVariable
from client.servers import Server, ServerChooser
from client.states import ConnectionEvent, ConnectionState
from client.tls import make_ssl_context
from client.uri import ServerUri, parse_uri
from server.wire.bookmarks import EPOCH, NOW

__all__ = [
    "EPOCH",
    "MOST_RECENT",
    "NOW",
    "AsyncClient",
    "AsyncHAClient",
    "AsyncMessageStream",
    "AuthenticationError",
    "Authenticator",
    "Backoff",
    "BadFilterError",
    "BadRegexTopicError",
    "BookmarkStorage",
    "BookmarkStore",
    "BookmarkTrail",
    "Client",
    "ClientError",
    "CommandError",
    "ConnectError",
    "ConnectionEvent",
    "ConnectionLostError",
    "ConnectionState",
    "Credentials",
    "CredentialsError",
    "DuplicateMessageError",
    "FileBookmarkStore",
    "FilePublishStore",
    "GaveUpError",
    "HAClient",
    "InvalidTopicError",
    "InvalidUriError",
    "KerberosAuthenticator",
    "LogonError",
    "Message",
    "MessageStream",
    "MessagesRefusedError",
    "MutualAuthenticator",
    "NameInUseError",
    "NotConnectedError",
    "NotEntitledError",
    "PasswordAuthenticator",
    "ProtocolError",
    "PublishStorage",
    "PublishStore",
    "PublishStoreFullError",
    "SecretAuthenticator",
    "SecretCommand",
    "SecretFile",
    "SecretSource",
    "SecretVariable",
    "Server",
    "ServerChooser",
    "ServerUri",
    "StoreError",
    "StoredMessage",
    "SubscriptionExistsError",
    "TimedOutError",
    "TlsFileError",
    "make_ssl_context",
    "parse_uri",
]

for _name in __all__:
    _public = globals()[_name]
    if hasattr(_public, "__qualname__"):  # a class or a function, not a constant
        _public.__module__ = "amperage"
