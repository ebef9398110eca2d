"""libamps_oauth_authentication: logons with codes or tokens of an OAuth 2.0 authorization server.

The client sends one of these in place of a password:

    an authorization code    is sent to the TokenEndpoint, with the secret that authenticates this
                             instance. If an access token is returned, the code is valid, and the
                             logon is accepted
    a bearer token           is verified here with the issuer's keys (`bearer.py`). This is an
                             extension to AMPS: KeySet, Issuer and the options for them

A code does not identify a user, so the name from the client applies. With a KeySet as well, the
returned token must also be valid, and its name applies: that of the ID token if there is one, else
that of the access token.

Codes, tokens and secrets are never logged or sent to clients; nor is the text of the authorization
server's responses, except for the error codes of the standard.

Source: AMPS User Guide, OAuth Authentication; RFC 6749, 4.1.3 Access Token Request, 5.1, 5.2.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from config_schema.catalogue import OptionProblem
from config_schema.spec import Options
from config_schema.units import UnitError, parse_count, parse_interval
from server.security.authentication import Admission, AuthenticatorWithoutScram
from server.security.http_client import (
    Endpoint,
    HttpClient,
    HttpClientError,
    HttpTlsSettings,
    parse_endpoint,
)
from server.security.http_client_options import read_tls, split_header
from server.security.oauth.tokens import (
    ALGORITHMS,
    MAX_KEY_SET_SIZE,
    BearerTokenError,
    KeysError,
    TokenRequirements,
)
from server.util.safe_open import check_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from server.security.async_worker import AsyncWorker
    from server.security.authentication import LogonCredentials
    from server.security.deferred import AnswerOrFuture
    from server.security.oauth.bearer import BearerTokenVerifier
    from server.util.log_protocol import ServerLog

LIBRARY: Final = "libamps_oauth_authentication.so"

DEFAULT_GRANT_TYPE: Final = "authorization_code"
DEFAULT_REQUEST_TIMEOUT: Final = "5000"
DEFAULT_RETRY_COUNT: Final = "0"
DEFAULT_USER_CLAIM: Final = "sub"
DEFAULT_CLOCK_SKEW: Final = "60s"
DEFAULT_ALGORITHMS: Final = "RS256,PS256,ES256,ES384,EdDSA,Ed25519"

_MAX_ANSWER_SIZE: Final = 1_048_576
"""Size limit of a server's response, in bytes."""
_URL: Final = ("http:", "https:")
_MILLISECONDS: Final = 1000
_NANOSECONDS: Final = 1_000_000_000
_SERVER_ERROR: Final = 500

_START_FAILS: Final = "the server does not start without it"

_KNOWN_ERRORS: Final = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
    }
)
_INSTANCE_ERRORS: Final = _KNOWN_ERRORS - {"invalid_grant"}
"""Errors that concern this instance, not the user."""

_UNDECIDED: Final = "the credentials cannot be checked at the moment"
_NOT_ACCEPTED: Final = "the token is not accepted"


class OAuthError(ValueError):
    """The module cannot be made as configured. The text names the option."""


class _CodeRefusedError(Exception):
    """A code is not accepted. The text gives the reason, for the log."""


@dataclass(frozen=True, slots=True)
class _TokenEndpoint:
    """Exchanges a code for an access token.

    Attributes:
        endpoint: the URL.
        client: sends the requests.
        headers: of the request.
        form: the form fields besides the code.
        max_attempts: the maximum number of attempts.
    """

    endpoint: Endpoint
    client: HttpClient
    headers: Sequence[tuple[str, str]]
    form: Mapping[str, str]
    max_attempts: int

    async def exchange(self, code: str) -> Mapping[str, Any]:
        """Exchange a code for an access token.

        Returns:
            The fields of the response, which has an access token.

        Raises:
            _CodeRefusedError: the response has no access token.
            HttpClientError: there is no response, or an unusable one.
        """
        body = urlencode({**self.form, "code": code}).encode("ascii")
        form = "application/x-www-form-urlencoded"
        headers = [("content-type", form), *self.headers]
        for left in range(self.max_attempts - 1, -1, -1):
            try:
                answer = await self.client.request("POST", self.endpoint, headers, body)
            except HttpClientError:
                if not left:
                    raise
                continue
            if answer.status < _SERVER_ERROR or not left:
                break
        return self._parse_response(answer.status, answer.body)

    def _parse_response(self, status: int, body: bytes) -> Mapping[str, Any]:
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        fields: Mapping[str, Any] = content if isinstance(content, dict) else {}
        error = fields.get("error")
        if isinstance(error, str) and error in _INSTANCE_ERRORS:
            raise HttpClientError(f"{self.endpoint}: it returned {error} for this instance")
        if error is not None:
            is_known = isinstance(error, str) and error in _KNOWN_ERRORS
            raise _CodeRefusedError(
                f"{self.endpoint} returned {error if is_known else 'an unknown error'}"
            )
        if status != 200:
            raise HttpClientError(f"{self.endpoint}: its status is {status}, expected 200")
        token = fields.get("access_token")
        if not isinstance(token, str) or not token:
            raise _CodeRefusedError(f"{self.endpoint} gives no access token")
        return fields


@dataclass(frozen=True, slots=True)
class OAuthAuthenticator(AuthenticatorWithoutScram):
    """The module: a logon is one step.

    Attributes:
        endpoint: exchanges codes; None if clients send bearer tokens.
        verifier: verifies tokens; None without keys.
        worker: runs the decisions.
        log: records why a logon cannot be decided.
    """

    endpoint: _TokenEndpoint | None
    verifier: BearerTokenVerifier | None
    worker: AsyncWorker
    log: ServerLog

    def begin_logon(self) -> OAuthAuthenticator:
        """See `LogonAuthenticator`."""
        return self

    def forget(self) -> None:
        """See `LogonAuthenticator`: no state of logons is kept."""

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        if not credentials.password:
            return Admission(False, "", "a token is required, in the place of the password")
        if self.verifier is None and not credentials.user:
            return Admission(False, "", "a user name is required")
        return self.worker.submit(lambda: self._decide(credentials), self._log_undecided)

    async def _decide(self, credentials: LogonCredentials) -> Admission:
        try:
            user = await self._identify_user(credentials)
            return Admission(True, user, "", is_proven=self.verifier is not None)
        except (_CodeRefusedError, BearerTokenError) as error:
            return Admission(False, "", _NOT_ACCEPTED, detail=str(error))
        except (KeysError, HttpClientError) as error:
            return self._log_undecided(str(error))

    async def _identify_user(self, credentials: LogonCredentials) -> str:
        shown = credentials.password
        if self.endpoint is not None:
            answer = await self.endpoint.exchange(shown)
            if self.verifier is None:
                return credentials.user
            shown = str(answer.get("id_token") or answer["access_token"])
        assert self.verifier is not None  # noqa: S101 - the module has one of both
        return await self.verifier.user_of(shown)

    def _log_undecided(self, problem: str) -> Admission:
        self.log.emit("25-0070", problem=problem)
        return Admission(False, "", _UNDECIDED, undecided=True)


def make_oauth(options: Options, worker: AsyncWorker, log: ServerLog) -> OAuthAuthenticator:
    """Make the module.

    Args:
        options: its options, checked to be consistent with each other.
        worker: runs its decisions.
        log: records why a logon cannot be decided.

    Raises:
        OAuthError: an option has a value that cannot be used.
    """
    seconds = _count(options, "RequestTimeout", DEFAULT_REQUEST_TIMEOUT) / _MILLISECONDS
    client = HttpClient(_tls(options), seconds, seconds, _MAX_ANSWER_SIZE)
    verifier = None
    if (source := options.get("KeySet")) is not None:
        verifier = _verifier(options, source, client, log)
    endpoint = None
    if (url := options.get("TokenEndpoint")) is not None:
        form = {
            "grant_type": options.get("GrantType") or DEFAULT_GRANT_TYPE,
            "redirect_uri": options.get("RedirectURI") or "",
            "client_id": options.get("ClientID") or "",
            "client_secret": options.get("ClientSecret") or "",
        }
        headers = [_header(text) for text in options.all("HTTPHeader")]
        tries = 1 + _count(options, "RetryCount", DEFAULT_RETRY_COUNT)
        endpoint = _TokenEndpoint(_endpoint("TokenEndpoint", url), client, headers, form, tries)
    return OAuthAuthenticator(endpoint, verifier, worker, log)


def _verifier(
    options: Options, source: str, client: HttpClient, log: ServerLog
) -> BearerTokenVerifier:
    try:
        from server.security.oauth import bearer
    except ImportError as error:
        raise OAuthError(
            f"KeySet needs a library that is not here: {error}; it comes with "
            "pip install 'amperage[oauth]'"
        ) from None
    expected = TokenRequirements(
        issuer=options.get("Issuer") or "",
        audiences=options.all("Audience"),
        algorithms=_algorithms(options.get("Algorithms") or DEFAULT_ALGORITHMS),
        user_claim=options.get("UserNameClaim") or DEFAULT_USER_CLAIM,
        skew=parse_interval(options.get("ClockSkew") or DEFAULT_CLOCK_SKEW) / _NANOSECONDS,
    )
    where: bearer.TokenKeySource
    if source.startswith(_URL):
        where = bearer.UrlKeySource(_endpoint("KeySet", source), client)
    elif Path(source).is_file():
        where = bearer.FileKeySource(Path(source))
    else:
        raise OAuthError(f"KeySet {source}: there is no such file, and it is no URL")
    return bearer.BearerTokenVerifier(expected, bearer.IssuerKeys(where, log))


def check_endpoint(text: str) -> str | None:
    """Return the problem of a TokenEndpoint; None if there is none."""
    return _problem(lambda: _endpoint("", text))


def check_key_set(text: str) -> str | None:
    """Return the problem of a KeySet, as far as its text shows."""
    return check_endpoint(text) if text.startswith(_URL) or "://" in text else None


def check(own_options: Options, inherited: Options) -> Iterator[OptionProblem]:
    """Yield the problems of a use's options; files may be on a machine other than this one."""
    names = {option.name for option in own_options}
    options = Options((*own_options, *(option for option in inherited if option.name not in names)))
    for name in ("Issuer", "Audience"):
        if not all(text.strip() for text in options.all(name)):
            yield OptionProblem(name, "is empty: a token would need an empty issuer or audience")
    source = options.get("KeySet")
    if source and "://" not in source:
        try:
            check_regular(source, MAX_KEY_SET_SIZE)
        except OSError as error:
            problem = f"{source}: {error.strerror or error}"
            yield OptionProblem("KeySet", problem, _START_FAILS, is_warning=True)
    try:
        _tls(options)
    except OAuthError as error:
        option, _, problem = str(error).partition(" ")
        yield OptionProblem(option, problem, _START_FAILS, is_warning=True)
    except UnitError:
        return  # reported already


def check_header(text: str) -> str | None:
    """Return the problem of an HTTPHeader; None if there is none."""
    return _problem(lambda: _header(text))


def _problem(read: Callable[[], object]) -> str | None:
    try:
        read()
    except OAuthError as error:
        return f"cannot be used: {str(error).partition(': ')[2]}"
    return None


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in ALGORITHMS:
            raise OAuthError(f"Algorithms: {name!r} is none of {', '.join(ALGORITHMS)}")
    return names


def _tls(options: Options) -> HttpTlsSettings:
    tls = read_tls(options)
    try:
        tls.context()
    except HttpClientError as error:
        raise OAuthError(str(error)) from None
    return tls


def _endpoint(name: str, url: str) -> Endpoint:
    try:
        return parse_endpoint(url)
    except ValueError as error:
        raise OAuthError(f"{name}: {error}") from None


def _header(text: str) -> tuple[str, str]:
    try:
        return split_header(text)
    except ValueError as error:
        raise OAuthError(f"HTTPHeader: {error}") from None


def _count(options: Options, name: str, default: str) -> int:
    try:
        return parse_count(options.get(name) or default)
    except UnitError as error:
        raise OAuthError(f"{name}: {error}") from None
