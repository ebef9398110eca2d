"""The logon as a dialogue: as many rounds as the server and the authenticator need."""

from __future__ import annotations

from client.authentication import Authenticator, Credentials
from client.commands import LogonOptions
from client.errors import LogonError, again
from client.limits import LOGON_ROUNDS
from client.pending import Request
from client.protocol import ClientProtocol
from client.uri import ServerUri
from server.wire.header import Header


class LogonDialogue:
    """One logon on one connection.

    Args:
        protocol: the connection.
        name: the client name.
        uri: the server; it says as whom to log on, and with which message type.
        authenticator: makes the credentials.
        options: of the logon.

    Attributes:
        answer: the acknowledgement, once the server has accepted the logon.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        name: str,
        uri: ServerUri,
        authenticator: Authenticator,
        options: LogonOptions,
    ) -> None:
        self.answer: Header | None = None
        self._protocol = protocol
        self._name = name
        self._uri = uri
        self._authenticator = authenticator
        self._options = options
        self._credentials = authenticator.authenticate(Credentials(uri.user, uri.password))
        self._rounds = 0

    def ask(self) -> Request:
        """Begin a round.

        Returns:
            The request to wait for, and then to pass to `take_answer`.

        Raises:
            LogonError: there have been too many rounds.
        """
        if self._rounds == LOGON_ROUNDS:
            raise LogonError("logon", f"the server asked for more than {LOGON_ROUNDS} rounds")
        self._rounds += 1
        return self._protocol.logon(
            self._name, *self._credentials, self._uri.message_type, **self._options
        )

    def take_answer(self, request: Request) -> None:
        """End a round.

        Raises:
            ClientError: the request failed.
        """
        if request.error is not None:
            raise again(request.error) from request.error
        answer = request.acks["processed"]
        if answer.status == "retry":
            given = Credentials(answer.user_id, answer.password)
            self._credentials = self._authenticator.retry(given)
        else:
            self.answer = answer
