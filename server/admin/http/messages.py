"""Requests and responses, as their handlers see them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import msgspec

from server.admin.http.limits import MAX_QUERY_PARAMETERS

HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
XML: Final = "application/xml; charset=utf-8"

HttpHeaders: TypeAlias = tuple[tuple[str, str], ...]


class HttpError(Exception):
    """A request that is refused. The text is for the client.

    Args:
        status: see RFC 9110, Status Codes.
        text: the reason, and the expected form.
        headers: of the answer.
    """

    def __init__(self, status: int, text: str, headers: HttpHeaders = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


@dataclass(frozen=True)
class HttpRequest:
    """A request that has arrived as a whole.

    Attributes:
        method: such as GET.
        path: as it was sent, percent-encoded; it begins with a slash.
        query: the parameters; of those with one name, the last.
        headers: by their names in lower case; values of one name are joined by commas.
        body: its body.
        peer: the address of the client, for the log.
        is_encrypted: whether it came over TLS.
        certificate_user: the user named by the client's certificate; empty without one.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    peer: str = ""
    is_encrypted: bool = False
    certificate_user: str = ""

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path, decoded; slashes at the end do not matter.

        Raises:
            HttpError: it is not UTF-8.
        """
        try:
            return tuple(
                unquote_to_bytes(part).decode() for part in self.path.rstrip("/").split("/")[1:]
            )
        except UnicodeDecodeError:
            raise HttpError(400, "The path is not UTF-8, percent-encoded.") from None


def split_target(target: str) -> tuple[str, dict[str, str]]:
    """Split the target of a request into its path and the parameters of its query.

    Raises:
        HttpError: it is not valid for a server, or has too many parameters.
    """
    if not target.startswith("/"):
        try:
            parts = urlsplit(target)
        except ValueError:
            parts = None
        if target == "*":
            return "/", {}
        if parts is None or parts.scheme not in ("http", "https"):
            raise HttpError(400, "The target of the request is no path: expected one as in /amps.")
        target = f"{parts.path or '/'}?{parts.query}"
    path, _, query = target.partition("?")
    try:
        parameters = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS)
    except ValueError:
        raise HttpError(
            400, f"The query has more than {MAX_QUERY_PARAMETERS} parameters."
        ) from None
    return path, dict(parameters)


class HttpDocument:
    """A body that may be sent more than once: its ETag and compressed form are computed once.

    Args:
        content: the bytes.
        content_type: their type.
    """

    def __init__(self, content: bytes, content_type: str) -> None:
        self.content: Final = content
        self.content_type: Final = content_type

    @cached_property
    def etag(self) -> str:
        """The tag of the content, the same for all encodings."""
        return f'W/"{hashlib.blake2b(self.content, digest_size=12).hexdigest()}"'

    @cached_property
    def compressed(self) -> bytes:
        """The content, compressed by gzip."""
        compressor = zlib.compressobj(level=1, wbits=31)
        return compressor.compress(self.content) + compressor.flush()


HttpBody: TypeAlias = HttpDocument | AsyncGenerator[bytes, None]
"""A complete document, or a stream."""


@dataclass(slots=True)
class HttpResponse:
    """An answer.

    Attributes:
        body: the body.
        status: see RFC 9110, Status Codes.
        content_type: of a stream; documents have their own.
        headers: besides those that follow from the body and the connection.
        last_modified: the value of this header, for content that changes seldom.
    """

    body: HttpBody
    status: int = 200
    content_type: str = TEXT
    headers: list[tuple[str, str]] = field(default_factory=list)
    last_modified: str = ""


def text_response(status: int, text: str, headers: HttpHeaders = ()) -> HttpResponse:
    """Return an answer that consists of a short text.

    Args:
        status: see RFC 9110, Status Codes.
        text: the text.
        headers: of the answer.
    """
    title = f"{status} {HTTPStatus(status).phrase}\n" if status >= HTTPStatus.BAD_REQUEST else ""
    content = f"{title}{text}\n".encode(errors="backslashreplace")
    return HttpResponse(
        HttpDocument(content, TEXT), status, headers=[("Cache-Control", "no-store"), *headers]
    )


def json_response(value: object, status: int = 200) -> HttpResponse:
    """Return an answer in JSON that must not be cached."""
    return uncached_response(HttpDocument(msgspec.json.encode(value), JSON), status)


def uncached_response(document: HttpDocument, status: int = 200) -> HttpResponse:
    """Return an answer that must not be cached."""
    return HttpResponse(document, status, headers=[("Cache-Control", "no-store")])


def is_unchanged(request: HttpRequest, response: HttpResponse) -> bool:
    """Return whether the client has the document already.

    Source: RFC 9110, Conditional Requests: If-None-Match and If-Modified-Since.
    """
    if request.method not in ("GET", "HEAD") or response.status != 200:
        return False
    entity_tags = request.headers.get("if-none-match")
    if entity_tags is not None:
        return isinstance(response.body, HttpDocument) and _names(entity_tags, response.body.etag)
    since = request.headers.get("if-modified-since")
    return bool(response.last_modified) and since == response.last_modified


def _names(entity_tags: str, etag: str) -> bool:
    """Return whether a list of entity tags has one; weak and strong tags compare equal."""
    tags = (tag.strip().removeprefix("W/") for tag in entity_tags.split(","))
    return entity_tags.strip() == "*" or etag.removeprefix("W/") in tags
