"""`/console/docs/operations.md`: the runbook that findings lead to, as a page.

The text is that of the documentation, which is installed with the server. Headings get the anchors
that links in Markdown have; all else is shown as it is written.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.admin.console.assets import CONSOLE
from server.admin.documents import html_form
from server.admin.http.messages import HTML, HttpDocument, HttpError, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester

_FILE: Final = ("docs", "operations.md")
PATH: Final = (CONSOLE, *_FILE)

_ROOTS: Final = (
    Path(__file__).parents[3],
    Path(sysconfig.get_path("data")) / "share" / "amperage",
)
"""A checkout, and an installation."""

_HEADING: Final = re.compile(r"(#{1,4}) (.*)")
_BREAK: Final = re.compile(r"\n(?=[|\-]|\d+\. )")
"""A line break before a row of a table or an item of a list."""


class RunbookPage:
    """Answers requests for the runbook.

    Args:
        access: checks the requester's permissions.
    """

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    async def handle_request(self, _request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return the page.

        Raises:
            HttpError: the documentation is not installed, or the requester may not read the
                console.
        """
        await self._access.require_access(requester, f"/{CONSOLE}")
        file = next((path for root in _ROOTS if (path := root.joinpath(*_FILE)).is_file()), None)
        if file is None:
            raise HttpError(404, f"{'/'.join(_FILE)} is not installed here.")
        lines = ["<main>", *_lines(file.read_text("utf-8")), "</main>"]
        return HttpResponse(HttpDocument(html_form.page("Runbook", lines), HTML))


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a document in Markdown as HTML."""
    for number, part in enumerate(re.split(r"^```.*\n", text, flags=re.MULTILINE)):
        if number % 2:
            yield f"<pre>{escape(part)}</pre>"
            continue
        for block in re.split(r"\n\s*\n", part.strip()):
            heading = _HEADING.fullmatch(block)
            if heading is not None:
                level, title = len(heading[1]), heading[2]
                yield f'<h{level} id="{anchor(title)}">{escape(title)}</h{level}>'
            elif block and not block.startswith("<!--"):
                yield from (f"<p>{escape(line)}</p>" for line in _BREAK.split(block))


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
