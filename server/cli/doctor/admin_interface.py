"""A client of the admin interface of an instance; failures become readable messages."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from config_schema.redaction import without_userinfo

TIMEOUT_S: Final = 10.0
"""How long an instance may take to connect and to send something, in seconds."""

_MAX_BYTES: Final = 64 << 20
_READ_SIZE: Final = 1 << 16
_MAX_REASON_LENGTH: Final = 100_000
_ADMINISTRATOR: Final = ("amps", "administrator")
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


class AdminRequestError(Exception):
    """The admin interface refused a request or did not answer. The text gives the reason.

    Attributes:
        status: HTTP status of the answer; 0 if there was none.
        reason: the reason that the answer gives; the whole text if there was none.
        advice: how to correct it, if that is known here.
        is_sent: whether the request may have reached the instance.
        is_closed: whether nothing listens there, or the connection was closed.
    """

    def __init__(
        self,
        text: str,
        status: int = 0,
        advice: str = "",
        reason: str = "",
        *,
        is_sent: bool = False,
        is_closed: bool = False,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason or text
        self.advice = advice
        self.is_sent = is_sent
        self.is_closed = is_closed


@dataclass(frozen=True, slots=True)
class AdminLogin:
    """The credentials and trusted authorities for the admin interface.

    Attributes:
        user: the user's name; empty for anonymous requests.
        password: the user's password.
        authorities: a file with certificates of authorities to trust, besides the system's.
    """

    user: str = ""
    password: str = ""
    authorities: str | None = None


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """An HTTP answer.

    Attributes:
        status: HTTP status.
        body: the text.
        date: the `Date` header of the server; empty if there is none.
    """

    status: int
    body: str
    date: str


class AdminClient:
    """Sends requests to the admin interface of one instance.

    Args:
        url: the address, such as `http://localhost:8085`.
        login: the credentials to use.
        timeout_s: seconds that the instance may take to connect, and to send something.

    Attributes:
        url: the address, without credentials.
        is_local: True if it is on this machine: by its name; after a connection, by IP address.

    Raises:
        AdminRequestError: the URL is invalid.
    """

    def __init__(self, url: str, login: AdminLogin, timeout_s: float = TIMEOUT_S) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise AdminRequestError(f"{url}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AdminRequestError(f"{url} is no address such as http://localhost:8085")
        self.url: Final = without_userinfo(f"{parts.scheme}://{parts.netloc}")
        self.is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        self._host: Final = parts.hostname
        self._port: Final = port
        self._is_encrypted: Final = parts.scheme == "https"
        self._login: Final = login
        self._timeout_s: Final = timeout_s

    def get(self, path: str) -> AdminResponse:
        """Request a path and return the answer.

        Raises:
            AdminRequestError: there is no answer, or it is a refusal; 503 counts as an answer.
        """
        answer = self.request(path)
        if answer.status in (200, 503):
            return answer
        raise self._refusal(path, answer)

    def administrator(
        self,
        names: Sequence[str],
        form: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the value below /amps/administrator that a path of names leads to.

        Args:
            names: the path.
            form: the parameters of an operation, which is executed; None to read a value.
            query: the parameters of a question that changes nothing.

        Raises:
            AdminRequestError: there is no answer, or it is a refusal, or the operation goes on.
        """
        names = (*_ADMINISTRATOR, *names)
        path = "/" + "/".join(quote(name, safe="!", errors="surrogateescape") for name in names)
        question = f"?{urlencode(query)}" if query else ""
        answer = self.request(f"{path}.json{question}", form)
        if answer.status not in (http.client.OK, http.client.ACCEPTED):
            raise self._refusal(path, answer)
        value = _parse(path, answer)
        for name in names:
            value = value[name]
        if answer.status == http.client.ACCEPTED:
            raise AdminRequestError(value, answer.status)
        return value

    def _refusal(self, path: str, answer: AdminResponse) -> AdminRequestError:
        """Return the error for a refusal: its body is the status line again, then the reason."""
        head, _, rest = answer.body.strip().partition("\n")
        if not head.startswith(f"{answer.status} "):
            head, rest = "", answer.body
        reason = rest.strip()[:_MAX_REASON_LENGTH] or head
        first = rest.strip().partition("\n")[0][:300]
        if answer.status == http.client.UNAUTHORIZED:
            first = "the credentials are refused" if self._login.user else "it asks for credentials"
        text = f"{path}: {answer.status} {first}".rstrip()
        return AdminRequestError(text, answer.status, reason=reason)

    def json(self, path: str) -> Any:
        """Request a path and return its JSON document.

        Raises:
            AdminRequestError: there is none.
        """
        return _parse(path, self.get(path))

    def first_event(self, path: str) -> Any:
        """Request a stream of events and return the first one, parsed as JSON.

        Raises:
            AdminRequestError: there is none.
        """
        answer = self.request(path, until=b"\n\n")
        data = [line[5:] for line in answer.body.split("\n") if line.startswith("data:")]
        try:
            return json.loads("\n".join(data))
        except ValueError:
            raise AdminRequestError(
                f"{path}: {answer.status}, and no event", answer.status
            ) from None

    def request(
        self, path: str, form: Mapping[str, str] | None = None, *, until: bytes = b""
    ) -> AdminResponse:
        """Request a path and return the answer, whatever its status.

        Args:
            path: the path, encoded.
            form: the parameters of an operation, which is requested by POST; GET if None.
            until: stop reading once the answer contains this.

        Raises:
            AdminRequestError: there is no answer.
        """
        is_sent = False
        try:
            connection = self._connection()
        except (OSError, ssl.SSLError) as error:
            raise AdminRequestError(f"{self._login.authorities}: {error}") from None
        try:
            connection.connect()
            own_address, peer_address = (
                connection.sock.getsockname()[0],
                connection.sock.getpeername()[0],
            )
            self.is_local = is_one_machine(own_address, peer_address)
            is_sent = True
            if form is None:
                connection.request("GET", path, headers=self._headers())
            else:
                connection.request("POST", path, urlencode(form), self._headers() | _FORM)
            response = connection.getresponse()
            body = _read(response, until, self._timeout_s)
        except ssl.SSLError as error:
            raise _tls_error(error) from None
        except (OSError, http.client.HTTPException) as error:
            is_closed = isinstance(error, ConnectionError | http.client.IncompleteRead)
            raise AdminRequestError(
                _connection_problem(error), is_sent=is_sent, is_closed=is_closed
            ) from None
        finally:
            connection.close()
        return AdminResponse(response.status, body, response.headers.get("Date", ""))

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_encrypted:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = ssl.create_default_context()
        if self._login.authorities is not None:
            context.load_verify_locations(self._login.authorities)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=context
        )

    def _headers(self) -> dict[str, str]:
        if not self._login.user:
            return {}
        pair = f"{self._login.user}:{self._login.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}


def is_one_machine(address: str, peer: str) -> bool:
    """Return True if the addresses of the two ends of a connection are on one machine."""
    return address == peer or ip_address(peer.partition("%")[0]).is_loopback


def _parse(path: str, answer: AdminResponse) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise AdminRequestError(f"{path}: the answer is no JSON", answer.status) from None


def _read(response: http.client.HTTPResponse, until: bytes, timeout_s: float) -> str:
    """Return the text of an answer; with `until`, stop reading once it contains that."""
    parts: list[bytes] = []
    size, end = 0, time.monotonic() + timeout_s
    while chunk := response.read1(_READ_SIZE):
        parts.append(chunk)
        size += len(chunk)
        if until and until in b"".join(parts):
            break
        if size > _MAX_BYTES or time.monotonic() > end:
            raise TimeoutError(f"the answer does not end, {size:,} bytes of it have come")
    return b"".join(parts).decode(errors="replace")


def _tls_error(error: ssl.SSLError) -> AdminRequestError:
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = (
            "give its authority with --ca-file, and the name that the certificate has with --url"
        )
        why = f"its certificate is not trusted: {error.verify_message}"
        return AdminRequestError(why, advice=advice)
    return AdminRequestError(
        f"no TLS: {error.reason or error}", advice="give another --url: http://..."
    )


def _connection_problem(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return str(error) if error.args and error.errno is None else "it does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"the program that answers does not speak HTTP ({type(error).__name__})"
