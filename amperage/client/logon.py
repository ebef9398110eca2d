"""The logon dialogue, with as many rounds as the server and the authenticator need."""

from __future__ import annotations

from amperage.client.authentication import Authenticator, Credentials, MutualAuthenticator
from amperage.client.commands import LogonParameters
from amperage.client.errors import LogonError, copy_error
from amperage.client.limits import MAX_LOGON_ROUNDS
from amperage.client.pending_requests import PendingRequest
from amperage.client.protocol import ClientProtocol
from amperage.client.uri import ServerUri
from amperage.wire.header import Header


class LogonDialogue:
    """One logon on one connection: rounds of `prepare`, `send_logon` and `process_answer`.

    Args:
        protocol: the connection.
        name: the client name.
        uri: the server, with the user, password and message type of the logon.
        authenticator: provides the credentials.
        options: the options of the logon.

    Attributes:
        answer: the acknowledgement, once the server has accepted the logon; None before.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        name: str,
        uri: ServerUri,
        authenticator: Authenticator,
        options: LogonParameters,
    ) -> None:
        self.answer: Header | None = None
        self._protocol = protocol
        self._name = name
        self._uri = uri
        self._authenticator = authenticator
        self._options = options
        self._credentials = Credentials(uri.user, uri.password)
        self._rounds = 0

    def prepare(self) -> None:
        """Get the credentials of the next round from the authenticator, which may block.

        Raises:
            CredentialsError: the authenticator has no credentials.
            LogonError: there have been too many rounds.
        """
        if self._rounds == MAX_LOGON_ROUNDS:
            raise LogonError("logon", f"the server asked for more than {MAX_LOGON_ROUNDS} rounds")
        authenticator = self._authenticator
        make = authenticator.retry if self._rounds else authenticator.authenticate
        self._credentials = make(self._credentials)
        self._rounds += 1

    def send_logon(self) -> PendingRequest:
        """Begin a round by sending the logon.

        Returns:
            The request; wait for it, then pass it to `process_answer`.
        """
        return self._protocol.logon(
            self._name, *self._credentials, self._uri.message_type, **self._options
        )

    def process_answer(self, request: PendingRequest) -> None:
        """End a round.

        Raises:
            ClientError: the request failed.
            CredentialsError: the authenticator rejects the server's proof of its identity.
        """
        if request.error is not None:
            raise copy_error(request.error)
        answer = request.acks["processed"]
        shown = Credentials(answer.user_id, answer.password)
        if answer.status == "retry":
            self._credentials = shown
            return
        if isinstance(self._authenticator, MutualAuthenticator):
            self._authenticator.completed(shown)
        self.answer = answer
