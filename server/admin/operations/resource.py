"""Answers requests for what is below /amps/administrator.

The path of a deed, and each path above it, may end with .json or .xml. Entitlement treats each
path as a resource of the type `admin` that is to be read (AMPS User Guide, Entitlement,
Administrator Actions). A page of another site that may read may also see these documents;
`csrf` restricts its deeds. A browser that asks for a deed by GET, as with a link, is shown a
form that asks for it by POST: a page of another site can have a browser follow a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from server.admin.documents import html_form, xml_form
from server.admin.http.limits import MAX_QUERY_PARAMETERS
from server.admin.http.messages import (
    HTML,
    JSON,
    XML,
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
)
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.admin.paths import split_path_format
from server.admin.tree import ROOT, link

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.audit_events import AdminAudit
    from server.admin.csrf import CsrfProtection
    from server.admin.engine_calls import EngineCalls
    from server.util.log_protocol import ServerLog

ADMINISTRATOR: Final = "administrator"
METHODS: Final = ("GET", "HEAD", "POST")

_TOP: Final = (ROOT, ADMINISTRATOR)
_CHECKED: Final = ("transport", "transports")
_CHECK: Final = ("authorization", "entitlement", "amps-admin", "check")
_FORMS: Final = ("json", "xml")
_ELEMENT: Final = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


class _OperationTarget(NamedTuple):
    """The target of a path: a group, or an entry of it, or a deed."""

    group: OperationGroup
    id: str = ""
    operation: AdminOperation | None = None


class OperationsResource:
    """Lists the deeds, and executes them.

    Args:
        groups: the deeds.
        access: checks the visitor's entitlement.
        csrf: decides which sites' pages may request deeds.
        engine_calls: executes deeds.
        audit: records executed deeds, and their users.
        log: likewise.
    """

    def __init__(
        self,
        groups: Sequence[OperationGroup],
        access: AccessControl,
        csrf: CsrfProtection,
        engine_calls: EngineCalls,
        audit: AdminAudit,
        log: ServerLog,
    ) -> None:
        self._groups = groups
        self._access = access
        self._csrf = csrf
        self._engine_calls = engine_calls
        self._audit = audit
        self._log = log

    async def handle_request(self, request: HttpRequest, visitor: Requester) -> HttpResponse:
        """Answer a request.

        Raises:
            HttpError: the path does not exist, the method is wrong, or the deed failed.
        """
        there = await self._engine_calls.call(self._list_tree)
        names, form = _without_form(request.segments, there)
        below = names[len(_TOP) :]
        if (*below[:2], *below[3:]) == _CHECK and below[2] in _CHECKED:
            return await self._check_access(request, visitor, names, form)
        await self._access.require_access(visitor, "/" + "/".join(names))
        found = _find(there, below)
        if found is not None and found.operation is not None:
            return await self._execute(request, visitor, names, form, found)
        if found is None and not _leads_on(there, below):
            raise HttpError(
                404, f"There is no {request.path}. What there is begins with {_path()}."
            )
        if request.method == "POST":
            raise HttpError(405, "Only what does something is asked for with POST.")
        shown = await self._visible_links(visitor, _below(there, below, found))
        return _list(names, shown, form)

    def _list_tree(self) -> _OperationTree:
        """Return the groups and their entries at the moment; on the engine's thread."""
        return {
            group.path: (group, None if group.list_entries is None else group.list_entries())
            for group in self._groups
        }

    async def _execute(
        self,
        request: HttpRequest,
        visitor: Requester,
        names: Sequence[str],
        form: str,
        found: _OperationTarget,
    ) -> HttpResponse:
        """Execute a deed on an entry, or on the instance itself.

        Raises:
            HttpError: it is not allowed, or failed.
        """
        operation = found.operation
        assert operation is not None  # noqa: S101 - the caller has found one
        if request.method == "HEAD":
            raise HttpError(405, "Expected GET or POST.", (("Allow", "GET, POST"),))
        self._csrf.refuse_foreign_request(request)
        parameters = _parameters(request)
        if self._csrf.is_forgeable(request):
            return _confirm(names, form, operation, parameters)
        if missing := [name for name in operation.required_parameters if name not in parameters]:
            listed = ", ".join(missing)
            raise HttpError(400, f"A request for {operation.name} needs the parameters {listed}.")
        who = f"user {visitor.user!r}" if visitor.user else ""
        self._audit.record_operation(visitor.user, request.peer, request.path)
        self._log.emit("19-0011", path=request.path, address=request.peer, who=who)
        try:
            done = await self._engine_calls.run_coroutine(
                lambda: operation.execute(found.id, parameters)
            )
        except OperationError as problem:
            raise HttpError(409, str(problem)) from None
        if operation.ends_sessions:
            self._access.sessions.end_all()
        return _say(names, done, form)

    async def _check_access(
        self, request: HttpRequest, visitor: Requester, names: Sequence[str], form: str
    ) -> HttpResponse:
        """Return whether the visitor may request a path, and execute nothing.

        Raises:
            HttpError: the request names no path.
        """
        path = request.query.get("path", "").partition("?")[0]
        if not path.startswith("/"):
            raise HttpError(400, "Expected the parameter path, as in ?path=/amps/administrator.")
        names_asked, _ = split_path_format(path.strip("/").split("/"))
        hidden = await self._access.hidden_paths(visitor, ["/" + "/".join(names_asked)])
        return _say(names, "false" if hidden else "true", form)

    async def _visible_links(self, visitor: Requester, links: Iterable[_Link]) -> list[_Link]:
        """Return those links that a visitor may follow."""
        all_links = list(links)
        paths = ["/" + "/".join(one.names) for one in all_links]
        hidden = await self._access.hidden_paths(visitor, paths)
        return [one for one, path in zip(all_links, paths, strict=True) if path not in hidden]


_OperationTree = Mapping[tuple[str, ...], tuple[OperationGroup, Mapping[str, str] | None]]


class _Link(NamedTuple):
    names: tuple[str, ...]
    display_name: str = ""
    description: str = ""
    operations: tuple[str, ...] = ()

    def values(self) -> dict[str, str]:
        """Return its fields in documents for programs."""
        about = {"description": self.description} if self.description else {}
        deeds = {name: link([*self.names, name]) for name in self.operations}
        return {"name": self.display_name} | about | {"path": link(self.names)} | deeds


def _find(there: _OperationTree, below: tuple[str, ...]) -> _OperationTarget | None:
    """Return the target of a path below /amps/administrator; None if there is none."""
    for path, (group, entries) in there.items():
        rest = below[len(path) :]
        if below[: len(path)] != path:
            continue
        if not rest and path:
            return _OperationTarget(group)
        if entries is None:
            if len(rest) == 1 and (deed := group.find_operation(rest[0])):
                return _OperationTarget(group, operation=deed)
        elif rest and rest[0] in entries:
            deed = group.find_operation(rest[1]) if len(rest) > 1 else None
            if len(rest) == 1 or (deed is not None and len(rest) == 2):
                return _OperationTarget(group, rest[0], deed)
    return None


def _leads_on(there: _OperationTree, below: tuple[str, ...]) -> bool:
    return any(path[: len(below)] == below for path in there)


def _below(
    there: _OperationTree, below: tuple[str, ...], found: _OperationTarget | None
) -> Iterator[_Link]:
    """Yield the links below a path."""
    at = (*_TOP, *below)
    if found is None:
        names = dict.fromkeys(path[len(below)] for path in there if len(path) > len(below))
        yield from (_Link((*at, name)) for name in names)
        if below in there:
            yield from _links_of(at, there[below][0].operations)
        return
    deeds = tuple(deed.name for deed in found.group.operations)
    entries = there[found.group.path][1]
    if found.id or entries is None:
        yield from _links_of(at, found.group.operations)
    else:
        yield from (_Link((*at, id_), known_as, "", deeds) for id_, known_as in entries.items())


def _links_of(at: tuple[str, ...], deeds: Iterable[AdminOperation]) -> Iterator[_Link]:
    for deed in deeds:
        yield _Link((*at, deed.name), deed.display_name or deed.name, deed.description)


def _list(names: Sequence[str], links: Sequence[_Link], form: str) -> HttpResponse:
    if form == "json":
        return _json(names, [{"id": one.names[-1]} | one.values() for one in links])
    if form == "xml":
        return _xml(names, "".join(map(_resource, links)))
    lines = [*html_form.trail(names), f"<main><h1>{escape(names[-1])}</h1>"]
    lines += html_form.links([(link(one.names), one.names[-1], _known_as(one)) for one in links])
    if not links:
        lines.append("<p>There is nothing here at the moment.</p>")
    lines.append("</main>")
    return _page(html_form.page(" / ".join(names), lines))


def _known_as(one: _Link) -> str:
    name = "" if one.display_name == one.names[-1] else one.display_name
    return ": ".join(filter(None, (name, one.description)))


def _resource(one: _Link) -> str:
    texts = "".join(
        f"<{name}>{xml_form.escape(text)}</{name}>" for name, text in one.values().items()
    )
    return f"<resource id='{xml_form.attribute(one.names[-1])}'>{texts}</resource>"


def _say(names: Sequence[str], text: str, form: str) -> HttpResponse:
    if form == "json":
        return _json(names, text)
    if form == "xml":
        return _xml(names, xml_form.escape(text))
    return _page(html_form.leaf(text))


def _confirm(
    names: Sequence[str], form: str, deed: AdminOperation, parameters: OperationParameters
) -> HttpResponse:
    """Return the form by which a browser asks for a deed.

    Raises:
        HttpError: a document for programs was requested, and not a page.
    """
    allowed = ("Allow", "POST")
    if form:
        raise HttpError(
            405,
            "A browser acts by POST only, since any page can have it send a GET. Programs that "
            "look like a browser add the header X-Requested-With to GET or POST.",
            (allowed,),
        )
    action = escape(link(names))
    lines = [*html_form.trail(names), f"<main><h1>{escape(deed.display_name or deed.name)}</h1>"]
    lines += [f"<p>{escape(deed.description)}</p>", f'<form method="post" action="{action}">']
    lines += [
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in parameters.items()
    ]
    lines += [
        f'<p><label>{escape(name)} <input name="{escape(name)}"></label></p>'
        for name in deed.required_parameters
        if name not in parameters
    ]
    lines.append(f"<p><button>{escape(deed.name)}</button></p></form></main>")
    page = _page(html_form.page(" / ".join(names), lines))
    page.status = 405
    page.headers.append(allowed)
    return page


def _page(content: bytes) -> HttpResponse:
    return _fresh(HttpDocument(content, HTML))


def _json(names: Sequence[str], value: object) -> HttpResponse:
    """Return a document that has a value at its path, as those of the tree do."""
    for name in reversed(names):
        value = {name: value}
    return _fresh(HttpDocument(msgspec.json.encode(value), JSON))


def _xml(names: Sequence[str], content: str) -> HttpResponse:
    """Return the same in XML; parts of a path that cannot be element names are attributes."""
    for name in reversed(names):
        known = _ELEMENT.fullmatch(name) is not None
        opening = name if known else f"resource id='{xml_form.attribute(name)}'"
        content = f"<{opening}>{content}</{name if known else 'resource'}>"
    return _fresh(HttpDocument(f"{content}\n".encode(), XML))


def _fresh(document: HttpDocument) -> HttpResponse:
    return HttpResponse(document, headers=[("Cache-Control", "no-store")])


def _without_form(segments: Sequence[str], there: _OperationTree) -> tuple[tuple[str, ...], str]:
    """Return a path without the form of its document, and the form; a deed's name comes first."""
    found = _find(there, tuple(segments[len(_TOP) :]))
    names, form = split_path_format(segments)
    if (found is not None and found.operation is not None) or form not in _FORMS:
        return tuple(segments), ""
    return names, form


def _parameters(request: HttpRequest) -> OperationParameters:
    """Return the parameters of a request: of its query, and of a form that was sent.

    Raises:
        HttpError: there are too many.
    """
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return request.query
    try:
        sent = parse_qsl(
            request.body.decode(errors="replace"),
            keep_blank_values=True,
            max_num_fields=MAX_QUERY_PARAMETERS,
        )
    except ValueError:
        raise HttpError(400, f"The form has more than {MAX_QUERY_PARAMETERS} parameters.") from None
    return {**request.query, **dict(sent)}


def _path() -> str:
    return link(_TOP)
