"""Requests of `amps-ctl` to one instance; refusals and missing answers become `CtlError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from server.cli.doctor.admin_interface import AdminClient, AdminLogin, AdminRequestError

_TIMEOUT_S: Final = 30.0
"""The time limit of an answer; the instance itself answers within a shorter one."""

_OK: Final = 200
_ACCEPTED: Final = 202
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503


class CtlStatus(IntEnum):
    """The exit statuses of `amps-ctl`; 2 is an invalid command line."""

    DONE = 0
    REFUSED = 1
    """The instance refused, or could not do it."""
    NOT_READY = 3
    """The instance answers, and is not healthy or not ready."""
    NO_ANSWER = 4
    """The instance could not be reached, or did not accept the credentials: nothing was done."""
    UNKNOWN = 5
    """The request was sent and the result is unknown."""


class CtlError(Exception):
    """A request failed. The text is for the operator.

    Attributes:
        status: the exit status.
    """

    def __init__(self, text: str, status: CtlStatus) -> None:
        super().__init__(text)
        self.status: Final = status


class NoInstanceError(CtlError):
    """Nothing listens at the address, or the connection was closed: the process may have ended."""


class CtlEntry(NamedTuple):
    """One entry of a list.

    Attributes:
        id: its id, the part of its path.
        name: its name, if it has another.
        description: its description, if there is one.
    """

    id: str
    name: str
    description: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it can be given: a topic also without its message type."""
        return tuple(filter(None, (self.id, self.name, self.id.partition("!")[0])))


class CtlInstance:
    """The admin interface of one instance.

    Args:
        url: the address.
        login: the credentials.

    Raises:
        CtlError: the URL is invalid.
    """

    def __init__(self, url: str, login: AdminLogin) -> None:
        try:
            self._client = AdminClient(url, login, _TIMEOUT_S)
        except AdminRequestError as error:
            raise CtlError(str(error), CtlStatus.NO_ANSWER) from None
        self.url: Final = self._client.url

    def list_entries(self, path: Sequence[str]) -> list[CtlEntry]:
        """Return the entries of a list below /amps/administrator.

        Raises:
            CtlError: there is no answer, or it is a refusal.
        """
        return [
            CtlEntry(entry["id"], entry.get("name", ""), entry.get("description", ""))
            for entry in self._administrator(path, None)
        ]

    def execute(self, path: Sequence[str], parameters: Mapping[str, str] | None = None) -> str:
        """Execute an operation below /amps/administrator, and return its result in a sentence.

        Raises:
            CtlError: it failed, or its result is unknown.
        """
        return str(self._administrator(path, parameters or {}))

    def ask(self, path: Sequence[str], query: Mapping[str, str]) -> str:
        """Return the answer below /amps/administrator to a question that changes nothing.

        Raises:
            CtlError: there is no answer, or it is a refusal.
        """
        return str(self._administrator(path, None, query))

    def get_document(self, path: str) -> Any:
        """Return a JSON document; one of a health check also if that fails.

        Raises:
            CtlError: there is no answer, or it is a refusal.
        """
        try:
            return self._client.json(path)
        except AdminRequestError as error:
            raise self._error(error, is_operation=False) from None

    def _administrator(
        self,
        names: Sequence[str],
        form: Mapping[str, str] | None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        try:
            return self._client.administrator(names, form, query)
        except AdminRequestError as error:
            raise self._error(error, is_operation=form is not None) from None

    def _error(self, error: AdminRequestError, *, is_operation: bool) -> CtlError:
        unknown_or_none = CtlStatus.UNKNOWN if is_operation else CtlStatus.NO_ANSWER
        if not error.status:
            advice = f" ({error.advice})" if error.advice else ""
            status = unknown_or_none if error.is_sent else CtlStatus.NO_ANSWER
            kind = NoInstanceError if error.is_closed else CtlError
            return kind(f"{self.url}: {error}{advice}", status)
        if error.status == _UNAUTHORIZED:
            return CtlError("the credentials are missing or refused", CtlStatus.NO_ANSWER)
        # an answer that is no JSON, an operation that goes on, or no answer in time
        if error.status in (_OK, _ACCEPTED, _UNAVAILABLE):
            return CtlError(error.reason, unknown_or_none)
        if error.status == _NOT_FOUND and is_operation:
            return CtlError("there is no such operation at the moment", CtlStatus.REFUSED)
        return CtlError(error.reason, CtlStatus.REFUSED)
