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

from server.admin.http.events import EVENT_STREAM, STILL_THERE, event
from server.admin.http.messages import Refusal, Request, Response

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor
    from server.admin.csrf import CrossSite
    from server.log.targets.memory import Kept, MemoryTarget

PATH: Final = ("console", "log")

MOST_FOLLOWERS: Final = 50

_BEAT_SECONDS: Final = 15.0
"""The longest silence on a stream: writing to it detects a follower that has disconnected."""


class LogTail:
    """Streams log entries to followers.

    Args:
        recent: keeps the last entries.
        access: checks the visitor's permissions.
        cross_site: refuses pages of other sites: the log has more details of clients and the
            configuration than an arbitrary page in a browser may read.
    """

    def __init__(self, recent: MemoryTarget, access: Access, cross_site: CrossSite) -> None:
        self._recent = recent
        self._access = access
        self._cross_site = cross_site
        self._followers = 0

    async def answer(self, request: Request, visitor: Visitor) -> Response:
        """Return a stream of the entries after number `Last-Event-ID`, then of new ones.

        Raises:
            Refusal: the visitor may not read the log, the request comes from a page of another
                site, or there are `MOST_FOLLOWERS` already.
        """
        self._cross_site.refuse_foreign(request)
        await self._access.require(visitor, "/" + "/".join(PATH))
        if self._followers >= MOST_FOLLOWERS:
            raise Refusal(503, f"{MOST_FOLLOWERS} follow the log already: that is as many as may.")
        known = request.headers.get("last-event-id", "")
        number = int(known) if known.isascii() and known.isdigit() and len(known) < 19 else 0
        return Response(
            self._events(number),
            content_type=EVENT_STREAM,
            headers=[("Cache-Control", "no-store")],
        )

    async def _events(self, number: int) -> AsyncGenerator[bytes, None]:
        loop, more = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(more.set)

        self._followers += 1
        stop: Callable[[], None] = self._recent.follow(tell)
        try:
            while True:
                more.clear()
                entries = self._recent.since(number)
                if entries:
                    number = entries[-1].number
                    yield event("entries", _as_text(entries), str(number))
                    continue
                try:
                    await asyncio.wait_for(more.wait(), _BEAT_SECONDS)
                except TimeoutError:
                    yield STILL_THERE
        finally:
            stop()
            self._followers -= 1


def _as_text(entries: list[Kept]) -> str:
    """Return the entries as JSON."""
    return msgspec.json.encode(
        [
            {
                "number": kept.number,
                "level": kept.line.level.label,
                "text": kept.line.text.decode(errors="replace").rstrip("\n"),
            }
            for kept in entries
        ]
    ).decode()
