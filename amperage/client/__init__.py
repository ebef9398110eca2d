"""A client of the amps protocol: one sans-I/O core, a blocking and an asyncio shell.

with amperage.connect("tcp://localhost:9007/amps/json", name="pricing") as client:
    client.publish("orders", b'{"id": 1, "qty": 5}')
    for message in client.subscribe("orders", filter="/qty > 3"):
        print(message.text)
"""

from amperage.client.aio import AsyncClient
from amperage.client.aio_connect import connect_async
from amperage.client.aio_stream import AsyncMessageStream
from amperage.client.authentication import (
    Authenticator,
    Credentials,
    MutualAuthenticator,
    PasswordAuthenticator,
    SecretAuthenticator,
)
from amperage.client.backoff import Backoff
from amperage.client.blocking import Client
from amperage.client.blocking_connect import connect
from amperage.client.blocking_stream import MessageStream
from amperage.client.bookmarks import MOST_RECENT, BookmarkStorage, BookmarkStore, BookmarkTrail
from amperage.client.deliveries import DeliveryReport
from amperage.client.errors import (
    AuthenticationError,
    BadFilterError,
    BadRegexTopicError,
    ClientError,
    CommandError,
    ConnectError,
    ConnectionLostError,
    CredentialsError,
    DecodeError,
    DuplicateMessageError,
    EncodeError,
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
    SlowStreamError,
    StoreError,
    SubscriptionExistsError,
    TimedOutError,
    TlsFileError,
)
from amperage.client.file_bookmark_store import FileBookmarkStore
from amperage.client.file_publish_store import FilePublishStore
from amperage.client.ha import HAClient
from amperage.client.ha_aio import AsyncHAClient
from amperage.client.kerberos import KerberosAuthenticator
from amperage.client.message import Message
from amperage.client.publish_store import PublishStorage, PublishStore, StoredMessage
from amperage.client.secrets import SecretCommand, SecretFile, SecretSource, SecretVariable
from amperage.client.servers import Server, ServerChooser
from amperage.client.states import ConnectionEvent, ConnectionState
from amperage.client.statistics import ClientStatistics
from amperage.client.tls import make_ssl_context
from amperage.client.uri import ServerUri, parse_uri
from amperage.wire.bookmarks import EPOCH, NOW

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
    "ClientStatistics",
    "CommandError",
    "ConnectError",
    "ConnectionEvent",
    "ConnectionLostError",
    "ConnectionState",
    "Credentials",
    "CredentialsError",
    "DecodeError",
    "DeliveryReport",
    "DuplicateMessageError",
    "EncodeError",
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
    "SlowStreamError",
    "StoreError",
    "StoredMessage",
    "SubscriptionExistsError",
    "TimedOutError",
    "TlsFileError",
    "connect",
    "connect_async",
    "make_ssl_context",
    "parse_uri",
]

for _name in __all__:
    _public = globals()[_name]
    if hasattr(_public, "__qualname__"):  # a class or a function, not a constant
        _public.__module__ = "amperage"
