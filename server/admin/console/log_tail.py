"""`/console/log`: the last entries of the log, then new ones, as server-sent events.

    event: entries   [{"number": 17, "level": "info", "text": "2026-..."}, ...]

The id of each event is the number of its last entry, so that a browser that reconnects continues
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from server.admin.http.events import EVENT_STREAM, KEEPALIVE_COMMENT, event
from server.admin.http.messages import HttpError, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.csrf import CsrfProtection
    from server.log.targets.memory import MemoryLogEntry, MemoryTarget

PATH: Final = ("console", "log")

MAX_LOG_FOLLOWERS: Final = 50

_KEEPALIVE_SECONDS: Final = 15.0
"""The longest silence on a stream: writing to it detects a follower that has disconnected."""


class LogTail:
    """Streams log entries to followers.

    Args:
        recent_entries: keeps the last entries.
        access: checks the requester's permissions.
        csrf: refuses pages of other sites: the log has more details of clients and the
            configuration than an arbitrary page in a browser may read.
    """

    def __init__(
        self, recent_entries: MemoryTarget, access: AccessControl, csrf: CsrfProtection
    ) -> None:
        self._recent_entries = recent_entries
        self._access = access
        self._csrf = csrf
        self._follower_count = 0

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return a stream of the entries after number `Last-Event-ID`, then of new ones.

        Raises:
            HttpError: the requester may not read the log, the request comes from a page of another
                site, or there are `MAX_LOG_FOLLOWERS` already.
        """
        self._csrf.refuse_foreign_request(request)
        await self._access.require_access(requester, "/" + "/".join(PATH))
        if self._follower_count >= MAX_LOG_FOLLOWERS:
            raise HttpError(
                503, f"{MAX_LOG_FOLLOWERS} follow the log already: that is as many as may."
            )
        last_event_id = request.headers.get("last-event-id", "")
        number = (
            int(last_event_id)
            if last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19
            else 0
        )
        return HttpResponse(
            self._event_stream(number),
            content_type=EVENT_STREAM,
            headers=[("Cache-Control", "no-store")],
        )

    async def _event_stream(self, number: int) -> AsyncGenerator[bytes, None]:
        loop, new_entries = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(new_entries.set)

        self._follower_count += 1
        stop: Callable[[], None] = self._recent_entries.add_follower(notify)
        try:
            while True:
                new_entries.clear()
                entries = self._recent_entries.entries_after(number)
                if entries:
                    number = entries[-1].number
                    yield event("entries", _as_text(entries), str(number))
                    continue
                try:
                    await asyncio.wait_for(new_entries.wait(), _KEEPALIVE_SECONDS)
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
        finally:
            stop()
            self._follower_count -= 1


def _as_text(entries: list[MemoryLogEntry]) -> str:
    """Return the entries as JSON."""
    return msgspec.json.encode(
        [
            {
                "number": entry.number,
                "level": entry.line.level.label,
                "text": entry.line.text.decode(errors="replace").rstrip("\n"),
            }
            for entry in entries
        ]
    ).decode()
