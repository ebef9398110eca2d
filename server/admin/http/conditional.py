"""Conditional requests: If-None-Match and If-Modified-Since.

Source: RFC 9110, Conditional Requests.
"""

from __future__ import annotations

from server.admin.http.messages import HttpDocument, HttpRequest, HttpResponse


def is_unchanged(request: HttpRequest, response: HttpResponse) -> bool:
    """Return whether the client has the document already."""
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
