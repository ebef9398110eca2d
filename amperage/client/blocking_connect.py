"""Connects a blocking client in one call.

Made from `aio_connect` (scripts/make_blocking_client.py).
"""

from __future__ import annotations

import os
import ssl

from amperage.client.authentication import Authenticator
from amperage.client.backoff import Backoff
from amperage.client.bookmarks import BookmarkStorage
from amperage.client.commands import LogonParameters
from amperage.client.environment import ServerList, servers_from
from amperage.client.errors import TimedOutError
from amperage.client.ha import HAClient
from amperage.client.limits import DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT
from amperage.client.publish_store import PublishStorage
from amperage.client.reconnection import ATTEMPTS_GO_ON
from amperage.client.sequence_numbers import RefusalListener
from amperage.client.serialization import Decoder, Encoder
from amperage.client.states import StateListener


def connect(
    url: ServerList | None = None,
    *,
    name: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    heartbeat: int | None = DEFAULT_HEARTBEAT,
    authenticator: Authenticator | None = None,
    ssl_context: ssl.SSLContext | None = None,
    backoff: Backoff | None = None,
    publish_store: PublishStorage | None = None,
    bookmark_store: BookmarkStorage | None = None,
    on_state: StateListener | None = None,
    on_refused: RefusalListener | None = None,
    logon_options: LogonParameters | None = None,
    encoder: Encoder | None = None,
    decoder: Decoder | None = None,
) -> HAClient:
    """Connect to a server, log on, and return the client, which reconnects automatically.

    Until a server can be reached, the attempts continue for `timeout` seconds. The environment
    supplies the missing parts: AMPERAGE_URL has the servers if `url` is None; AMPERAGE_USER and
    AMPERAGE_PASSWORD, or the file AMPERAGE_PASSWORD_FILE, have the credentials for servers without
    a password, unless there is an authenticator.

    Args:
        url: the server, such as "tcp://user:password@localhost:9007/amps/json". Several servers, as
            a list or separated by commas, are tried one after the other, also after a lost
            connection.
        name: the client name; with a `FilePublishStore`, the same in every run of a program. None
            generates one.
        timeout: seconds to wait for the session, and the default timeout of each call.
        heartbeat: seconds between heartbeats; None for no heartbeats.
        authenticator: provides the credentials; None sends the user and the password.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.
        backoff: the delays between rounds of attempts, and the limits of attempts.
        publish_store: stores messages until they are persisted; None for a store in memory.
        bookmark_store: stores the progress of bookmark subscriptions; None for a store in memory.
        on_state: a callback for each change of the connection's state.
        on_refused: a callback for each published message that the server refuses.
        logon_options: options of each logon.
        encoder: encodes published values that are neither bytes nor text: "json", or a function
            that returns bytes or text. None refuses them.
        decoder: decodes received bodies for `message.value`: "json", a type for JSON bodies, or a
            function of the bytes. None leaves them as they are.

    Raises:
        InvalidUriError: there is no server, or a URI is invalid.
        CredentialsError: the environment has two passwords, or a password without a user.
        TimedOutError: no server could be reached in time; the error has the last reason.
        GaveUpError: each server refused the logon, or the back-off allows no more attempts.
    """
    servers = servers_from(url, os.environ, has_authenticator=authenticator is not None)
    client = HAClient(
        servers,
        name,
        backoff=backoff,
        heartbeat=heartbeat,
        publish_store=publish_store,
        bookmark_store=bookmark_store,
        on_state=on_state,
        on_refused=on_refused,
        timeout=timeout,
        authenticator=authenticator,
        ssl_context=ssl_context,
        logon_options=logon_options,
        encoder=encoder,
        decoder=decoder,
    )
    try:
        client.connect()
    except BaseException as error:
        client.close()
        if isinstance(error, TimedOutError):
            raise TimedOutError(str(error).removesuffix(ATTEMPTS_GO_ON)) from None
        raise
    return client
