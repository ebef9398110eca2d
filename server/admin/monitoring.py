"""/amps: what there is to know of host and instance, now and over time.

A path may end with the form that is wanted: .json, .xml, .csv for single values, and .rnc for the
schema. Without one it leads to a page. Documents that anybody has asked for are kept until the next
sample, so that many who ask cost little more than one.

Source: AMPS User Guide, Monitoring AMPS; AMPS Monitoring Guide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from server.admin.documents import html_form, json_form, over_time, rnc, xml_form
from server.admin.documents.values import text_of
from server.admin.engine_side import within_limit
from server.admin.http.events import EVENT_STREAM
from server.admin.http.messages import HTML, JSON, Document, Refusal, Request, Response
from server.admin.moments import Moments, read_moments
from server.admin.tree import INSTANCE, MOMENT, ROOT, Node, NothingThere, Place, Tree
from server.admin.watching import Watching
from server.statistics.keeper import BusyError
from server.statistics.schema import Value
from server.statistics.timestamps import to_text

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor
    from server.statistics.history import History
    from server.statistics.keeper import Keeper
    from server.statistics.sample import Snapshot

_Result = TypeVar("_Result")

FORMS: Final = ("json", "xml", "csv", "rnc")
"""Suffixes of paths."""

CONFIGURATION: Final = "config.xml"
DETAILS: Final = "details"
QUEUES: Final = f"{INSTANCE}/queues"

_XML: Final = "application/xml; charset=utf-8"
_RNC: Final = "application/relax-ng-compact-syntax"
_PAGE: Final = 10_000
"""Values that are asked for at a time; a sample waits while they are read."""

_FIRST_SECONDS: Final = 5.0
"""How long somebody waits who asks before the first sample has been taken."""

_MOST_KEPT: Final = 64
_MOST_BYTES_KEPT: Final = 64 * 1024 * 1024
"""Documents, and bytes of them, that are kept until the next sample."""


class Monitoring:
    """Answers requests for what is below /amps.

    Args:
        statistics: has the samples.
        access: says who may see what.
    """

    def __init__(self, statistics: Keeper, access: Access) -> None:
        self._statistics = statistics
        self._access = access
        self._watching: Watching | None = None
        self._kept: dict[tuple[str, str, frozenset[str]], Document] = {}
        self._kept_of: Snapshot | None = None

    def begin(self) -> None:
        """The event loop runs."""
        self._watching = Watching(self._statistics)

    def close(self) -> None:
        """It is about to end."""
        if self._watching is not None:
            self._watching.close()

    async def answer(self, request: Request, visitor: Visitor) -> Response:
        """Answer a request.

        Raises:
            Refusal: there is nothing there, it may not be seen, or is not asked for in this way.
        """
        moments = read_moments(request.query)
        names = request.segments
        if _stem(names) == ((ROOT,), "rnc"):
            return Response(Document(rnc.render(), _RNC))
        if moments is not None and not moments.is_one:
            return await self._over_time(names, moments, visitor)
        tree = await self.latest() if moments is None else await self._earlier(moments.first)
        try:
            node, form = _find(tree, names)
        except NothingThere as nothing:
            raise _not_found(nothing) from None
        hidden = await self._hidden(visitor, node)
        if "watch" in request.query and moments is None and self._watching is not None:
            events = self._watching.begin(node, hidden)
            unbuffered = ("X-Accel-Buffering", "no")  # of proxies
            return Response(events, content_type=EVENT_STREAM, headers=[unbuffered])
        return Response(self._document(tree, node, form, hidden))

    async def latest(self) -> Tree:
        """The tree of the last sample; the first one is waited for.

        Raises:
            Refusal: there is none yet.
        """
        if self._statistics.latest is None and self._watching is not None:
            await self._watching.next_sample(_FIRST_SECONDS)
        snapshot = self._statistics.latest
        if snapshot is None:
            text = "The first sample is being taken. Try again in a moment."
            raise Refusal(503, text, (("Retry-After", "1"),))
        return Tree(snapshot)

    async def _hidden(self, visitor: Visitor, node: Node) -> frozenset[str]:
        """The places at and below a node that are not to be seen.

        Raises:
            Refusal: that itself is not.
        """
        await self._access.require(visitor, "/" + "/".join(node.names))
        below = [] if node.id is not None or node.field is not None else _below(node.place)
        paths = {f"/{ROOT}/{place.path}": place.path for place in below}
        return frozenset(paths[path] for path in await self._access.hidden(visitor, paths))

    # documents

    def _document(self, tree: Tree, node: Node, form: str, hidden: frozenset[str]) -> Document:
        if tree.snapshot is not self._statistics.latest:
            return _render(tree, node, form, hidden)
        if tree.snapshot is not self._kept_of:
            self._kept.clear()
            self._kept_of = tree.snapshot
        key = node.path, form, hidden
        document = self._kept.get(key)
        if document is None:
            document = _render(tree, node, form, hidden)
            size = sum(len(one.content) for one in (document, *self._kept.values()))
            if len(self._kept) < _MOST_KEPT and size <= _MOST_BYTES_KEPT:
                self._kept[key] = document
        return document

    # the past

    async def _ask(self, question: Callable[[History], _Result]) -> _Result:
        try:
            return await within_limit(self._statistics.ask(question), "The statistics database")
        except (BusyError, sqlite3.Error) as error:
            text = f"The statistics database cannot be read: {error}."
            raise Refusal(503, text, (("Retry-After", "10"),)) from None

    async def _earlier(self, timestamp: int) -> Tree:
        """The tree of a sample that was taken at a moment.

        Raises:
            Refusal: there is none.
        """
        snapshot = await self._ask(lambda history: history.snapshot(timestamp))
        if snapshot is None:
            raise Refusal(
                404,
                f"No sample was taken at {to_text(timestamp)}, or it is kept no more: with t0 and "
                f"t1 the same, expected one of /{ROOT}/{INSTANCE}/{MOMENT}.",
            )
        return Tree(snapshot)

    async def _over_time(
        self, names: Sequence[str], moments: Moments, visitor: Visitor
    ) -> Response:
        tree = await self.latest()
        try:
            node, form = _find(tree, names, has_gone=True)
        except NothingThere as nothing:
            raise _not_found(nothing) from None
        if node.field is None:
            raise Refusal(
                400,
                f"{node.path} has many values, and a time range is for one of them: add its name, "
                f"or give t0 and t1 the same moment, one of /{ROOT}/{INSTANCE}/{MOMENT}.",
            )
        await self._hidden(visitor, node)
        first = await self._values(tree, node, moments)
        if not first and not tree.is_there(node):
            raise Refusal(404, f"Nothing is known of {node.path} within that time.")
        return Response(
            self._pages(tree, node, form, moments, first),
            content_type=over_time.FORMS[form].content_type,
        )

    async def _values(self, tree: Tree, node: Node, moments: Moments) -> list[tuple[int, Value]]:
        """The first of a leaf's values within a time."""
        resource, field = node.place.resource, node.field
        if resource is None or field is None:
            return []
        if not resource.table:  # what is not recorded stays as it is
            now, value = tree.snapshot.timestamp, tree.value(node)
            is_within = value is not None and moments.first <= now <= moments.last
            return [(now, value)] if is_within and value is not None else []
        return await self._ask(
            lambda history: history.values(
                resource, node.id or "", field.name, moments.first, moments.last, _PAGE
            )
        )

    async def _pages(
        self,
        tree: Tree,
        node: Node,
        form: str,
        moments: Moments,
        values: list[tuple[int, Value]],
    ) -> AsyncGenerator[bytes, None]:
        """A leaf's values, page by page."""
        written, field = over_time.FORMS[form], node.field
        if field is None:
            return
        yield written.before(node).encode()
        lead = ""
        while values:
            texts = [
                written.value(to_text(timestamp), text_of(field, value))
                for timestamp, value in values
            ]
            yield (lead + written.between.join(texts)).encode(errors="replace")
            lead = written.between
            rest = Moments(values[-1][0] + 1, moments.last)
            values = await self._values(tree, node, rest) if len(values) == _PAGE else []
        yield written.after(node).encode()

    async def moments(self, request: Request, visitor: Visitor) -> Response:
        """Answer a request for when samples were taken.

        Raises:
            Refusal: it may not be seen, or is not asked for in this way.
        """
        await self._access.require(visitor, f"/{ROOT}/{INSTANCE}/{MOMENT}")
        range_ = read_moments(request.query) or Moments(0, 1 << 62)
        form = _stem(request.segments)[1]
        written = _TIMESTAMPS.get(form)
        if written is None:
            raise Refusal(404, f"There is no form {form!r} of this; expected json, xml or csv.")
        first = await self._timestamps(range_)
        return Response(
            self._timestamp_pages(written, range_, first), content_type=written.content_type
        )

    async def _timestamps(self, range_: Moments) -> list[int]:
        return await self._ask(lambda history: history.timestamps(range_.first, range_.last, _PAGE))

    async def _timestamp_pages(
        self, written: _List, range_: Moments, found: list[int]
    ) -> AsyncGenerator[bytes, None]:
        yield written.before.encode()
        lead = ""
        while found:
            texts = [written.line.format(to_text(timestamp)) for timestamp in found]
            yield (lead + written.between.join(texts)).encode()
            lead = written.between
            rest = Moments(found[-1] + 1, range_.last)
            found = await self._timestamps(rest) if len(found) == _PAGE else []
        yield written.after.encode()


class _List(msgspec.Struct, frozen=True):
    """How a list of moments is written."""

    content_type: str
    before: str
    line: str
    between: str
    after: str


_TIMESTAMPS: Final = {
    "": _List(over_time.FORMS[""].content_type, "", "{}\n", "", ""),
    "csv": _List(over_time.FORMS["csv"].content_type, "", "{}\n", "", ""),
    "json": _List(JSON, '{"amps":{"instance":{"timestamp":[', '"{}"', ",", "]}}}"),
    "xml": _List(
        _XML,
        "<amps>\n<instance>\n",
        "<timestamp>{}</timestamp>\n",
        "",
        "</instance>\n</amps>\n",
    ),
}


def _stem(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The path without the form, and the form; empty for a page."""
    if not names:
        return (), ""
    stem, _, form = names[-1].rpartition(".")
    if stem and form in FORMS:
        return (*names[:-1], stem), form
    return tuple(names), ""


def _find(tree: Tree, names: Sequence[str], *, has_gone: bool = False) -> tuple[Node, str]:
    """Follow a path that may end with a form; one that is an id as a whole is that.

    Raises:
        NothingThere: it leads nowhere.
    """
    stem, form = _stem(names)
    if form:
        try:
            return tree.find(names), ""
        except NothingThere:
            return tree.find(stem, has_gone=has_gone), form
    return tree.find(names, has_gone=has_gone), form


def _not_found(nothing: NothingThere) -> Refusal:
    there = f"What there is: {nothing.path}" if nothing.path else f"Begin with /{ROOT}"
    end = "" if nothing.near else "."
    return Refusal(404, f"{nothing}{end} {there}")


def _below(place: Place) -> list[Place]:
    found = []
    for child in place.children.values():
        found += [child, *_below(child)]
    return found


def _render(tree: Tree, node: Node, form: str, hidden: frozenset[str]) -> Document:
    """Make the document of a node.

    Raises:
        Refusal: it has none of this form.
    """
    is_shown = partial(_is_shown, hidden)
    if form == "json":
        return Document(json_form.render(tree, node, is_shown), JSON)
    if form == "xml":
        return Document(xml_form.render(tree, node, is_shown), _XML)
    moment = to_text(tree.snapshot.timestamp)
    if form == "csv" and node.field is not None:
        written = over_time.FORMS["csv"]
        line = written.value(moment, text_of(node.field, tree.value(node)))
        return Document(line.encode(errors="replace"), written.content_type)
    if form:
        what = "for single values" if form == "csv" else "the schema of all XML, at /amps.rnc"
        raise Refusal(404, f"{node.path} has no .{form}: that is {what}. Expected .json or .xml.")
    if node.field is not None:
        return Document(html_form.leaf(text_of(node.field, tree.value(node))), HTML)
    shown = [] if node.id is not None else list(filter(is_shown, node.place.children.values()))
    return Document(html_form.node(tree, node, moment, shown, _besides(node)), HTML)


def _is_shown(hidden: frozenset[str], place: Place) -> bool:
    return place.path not in hidden


def _besides(node: Node) -> list[str]:
    """What is at a node that is no part of samples."""
    if node.place.path == INSTANCE:
        return [CONFIGURATION, MOMENT]
    return [DETAILS] if node.place.path == QUEUES and node.id is not None else []
