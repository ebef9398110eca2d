"""Answers requests for paths below /amps/administrator.

The path of an operation, and each path above it, may end with .json or .xml. Entitlement treats
each path as a resource of the type `admin` that is to be read (AMPS User Guide, Entitlement,
Administrator Actions). A page of another site that may read may also see these documents;
`csrf` restricts its operations. A browser that requests one by GET, as with a link, is shown a
form that requests it by POST: a page of another site can have a browser follow a link.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl

from server.admin import engine_calls
from server.admin.documents import html_form, xml_form
from server.admin.http.limits import MAX_QUERY_PARAMETERS
from server.admin.http.messages import (
    HTML,
    XML,
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
    json_response,
    uncached_response,
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
    """The target of a path: a group, or an entry of it, or an operation."""

    group: OperationGroup
    id: str = ""
    operation: AdminOperation | None = None


class OperationsResource:
    """Lists the operations, and executes them.

    Args:
        groups: the operations, by group.
        access: checks the requester's entitlement.
        csrf: decides which sites' pages may request operations.
        engine_calls: executes operations.
        audit: records executed operations, and their users.
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

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Answer a request.

        Raises:
            HttpError: the path does not exist, the method is wrong, or the operation failed.
        """
        tree = await self._engine_calls.call(self._list_tree)
        names, form = _without_form(request.segments, tree)
        path = names[len(_TOP) :]
        if (*path[:2], *path[3:]) == _CHECK and path[2] in _CHECKED:
            return await self._check_access(request, requester, names, form)
        await self._access.require_access(requester, "/" + "/".join(names))
        target = _find(tree, path)
        if target is not None and target.operation is not None:
            return await self._execute(request, requester, names, form, target)
        if target is None and not _has_path_below(tree, path):
            raise HttpError(404, f"There is no {request.path}. Paths begin with {_path()}.")
        if request.method == "POST":
            raise HttpError(405, "POST executes operations; this is a list: use GET.")
        visible = await self._visible_links(requester, _below(tree, path, target))
        return _list(names, visible, form)

    def _list_tree(self) -> _OperationTree:
        """Return the groups and their entries at the moment; on the engine's thread."""
        return {
            group.path: (group, None if group.list_entries is None else group.list_entries())
            for group in self._groups
        }

    async def _execute(
        self,
        request: HttpRequest,
        requester: Requester,
        names: Sequence[str],
        form: str,
        target: _OperationTarget,
    ) -> HttpResponse:
        """Execute an operation on an entry, or on the instance itself.

        Raises:
            HttpError: it is not allowed, or failed.
        """
        operation = target.operation
        assert operation is not None  # noqa: S101 - the caller has found one
        if request.method == "HEAD":
            raise HttpError(405, "Expected GET or POST.", (("Allow", "GET, POST"),))
        self._csrf.refuse_foreign_request(request)
        parameters = _parameters(request)
        if self._csrf.is_forgeable(request):
            return _confirm(names, form, operation, parameters)
        if missing := [name for name in operation.required_parameters if name not in parameters]:
            missing_names = ", ".join(missing)
            raise HttpError(
                400, f"A request for {operation.name} needs the parameters {missing_names}."
            )
        user_text = f"user {requester.user!r}" if requester.user else ""
        details = ", ".join(
            f"{name}={parameters[name]}"
            for name in operation.audited_parameters
            if name in parameters
        )
        self._audit.record_operation(requester.user, request.peer, request.path, details)
        self._log.emit("19-0011", path=request.path, address=request.peer, who=user_text)
        answer = asyncio.wrap_future(
            self._engine_calls.start_coroutine(lambda: operation.execute(target.id, parameters))
        )
        try:
            await asyncio.wait([answer], timeout=engine_calls.TIMEOUT_S)
        finally:  # also if the client disconnects
            if operation.ends_sessions:
                self._access.sessions.end_all()
            if is_running := not answer.done():
                answer.add_done_callback(partial(self._log_result, request.path))
        if is_running:
            text = f"{request.path} goes on; its result will be in the log (19-0015 or 19-0016)."
            return _text_response(names, text, form, HTTPStatus.ACCEPTED)
        try:
            return _text_response(names, answer.result(), form)
        except OperationError as error:
            raise HttpError(409, str(error)) from None

    def _log_result(self, path: str, ended: asyncio.Future[str]) -> None:
        """Log the result of an operation for which no request waits."""
        error = ended.exception()
        if error is None:
            self._log.emit("19-0015", path=path, result=ended.result())
        else:
            self._log.emit("19-0016", path=path, reason=str(error) or type(error).__name__)

    async def _check_access(
        self, request: HttpRequest, requester: Requester, names: Sequence[str], form: str
    ) -> HttpResponse:
        """Return whether the requester may request a path, and execute nothing.

        Raises:
            HttpError: the request names no path.
        """
        path = request.query.get("path", "").partition("?")[0]
        if not path.startswith("/"):
            raise HttpError(400, "Expected the parameter path, as in ?path=/amps/administrator.")
        path_names, _ = split_path_format(path.strip("/").split("/"))
        hidden = await self._access.hidden_paths(requester, ["/" + "/".join(path_names)])
        return _text_response(names, "false" if hidden else "true", form)

    async def _visible_links(self, requester: Requester, links: Iterable[_Link]) -> list[_Link]:
        """Return those links that a requester may follow."""
        all_links = list(links)
        paths = ["/" + "/".join(entry.names) for entry in all_links]
        hidden = await self._access.hidden_paths(requester, paths)
        return [entry for entry, path in zip(all_links, paths, strict=True) if path not in hidden]


_OperationTree = Mapping[tuple[str, ...], tuple[OperationGroup, Mapping[str, str] | None]]


class _Link(NamedTuple):
    names: tuple[str, ...]
    display_name: str = ""
    description: str = ""
    operations: tuple[str, ...] = ()

    def values(self) -> dict[str, str]:
        """Return its fields in documents for programs."""
        description = {"description": self.description} if self.description else {}
        operation_links = {name: link([*self.names, name]) for name in self.operations}
        return (
            {"name": self.display_name} | description | {"path": link(self.names)} | operation_links
        )


def _find(tree: _OperationTree, segments: tuple[str, ...]) -> _OperationTarget | None:
    """Return the target of a path below /amps/administrator; None if there is none."""
    for group_path, (group, entries) in tree.items():
        rest = segments[len(group_path) :]
        if segments[: len(group_path)] != group_path:
            continue
        if not rest and group_path:
            return _OperationTarget(group)
        if entries is None:
            if len(rest) == 1 and (operation := group.find_operation(rest[0])):
                return _OperationTarget(group, operation=operation)
        elif rest and rest[0] in entries:
            operation = group.find_operation(rest[1]) if len(rest) > 1 else None
            if len(rest) == 1 or (operation is not None and len(rest) == 2):
                return _OperationTarget(group, rest[0], operation)
    return None


def _has_path_below(tree: _OperationTree, segments: tuple[str, ...]) -> bool:
    return any(group_path[: len(segments)] == segments for group_path in tree)


def _below(
    tree: _OperationTree, segments: tuple[str, ...], target: _OperationTarget | None
) -> Iterator[_Link]:
    """Yield the links below a path."""
    names_above = (*_TOP, *segments)
    if target is None:
        names = dict.fromkeys(path[len(segments)] for path in tree if len(path) > len(segments))
        yield from (_Link((*names_above, name)) for name in names)
        if segments in tree:
            yield from _links_of(names_above, tree[segments][0].operations)
        return
    operation_names = tuple(operation.name for operation in target.group.operations)
    if not target.id:
        length = len(target.group.path)
        inner_paths = [path for path in tree if len(path) > length and path[:length] == segments]
        yield from (_Link((*names_above, path[length])) for path in inner_paths)
    entries = tree[target.group.path][1]
    if target.id or entries is None:
        yield from _links_of(names_above, target.group.operations)
    else:
        yield from (
            _Link((*names_above, id_), display_name, "", operation_names)
            for id_, display_name in entries.items()
        )


def _links_of(
    names_above: tuple[str, ...], operations: Iterable[AdminOperation]
) -> Iterator[_Link]:
    for operation in operations:
        yield _Link(
            (*names_above, operation.name),
            operation.display_name or operation.name,
            operation.description,
        )


def _list(names: Sequence[str], links: Sequence[_Link], form: str) -> HttpResponse:
    if form == "json":
        return _json(names, [{"id": entry.names[-1]} | entry.values() for entry in links])
    if form == "xml":
        return _xml(names, "".join(map(_resource, links)))
    lines = [*html_form.trail(names), f"<main><h1>{escape(names[-1])}</h1>"]
    lines += html_form.links(
        [(link(entry.names), entry.names[-1], _display_text(entry)) for entry in links]
    )
    if not links:
        lines.append("<p>No entries at the moment.</p>")
    lines.append("</main>")
    return _page(html_form.page(" / ".join(names), lines))


def _display_text(entry: _Link) -> str:
    name = "" if entry.display_name == entry.names[-1] else entry.display_name
    return ": ".join(filter(None, (name, entry.description)))


def _resource(entry: _Link) -> str:
    texts = "".join(
        f"<{name}>{xml_form.escape(text)}</{name}>" for name, text in entry.values().items()
    )
    return f"<resource id='{xml_form.attribute(entry.names[-1])}'>{texts}</resource>"


def _text_response(
    names: Sequence[str], text: str, form: str, status: int = HTTPStatus.OK
) -> HttpResponse:
    if form == "json":
        response = _json(names, text)
    elif form == "xml":
        response = _xml(names, xml_form.escape(text))
    else:
        response = _page(html_form.leaf(text))
    response.status = status
    return response


def _confirm(
    names: Sequence[str], form: str, operation: AdminOperation, parameters: OperationParameters
) -> HttpResponse:
    """Return the form by which a browser requests an operation.

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
    lines = [
        *html_form.trail(names),
        f"<main><h1>{escape(operation.display_name or operation.name)}</h1>",
    ]
    lines += [f"<p>{escape(operation.description)}</p>", f'<form method="post" action="{action}">']
    lines += [
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in parameters.items()
    ]
    lines += [
        f'<p><label>{escape(name)} <input name="{escape(name)}"></label></p>'
        for name in operation.required_parameters
        if name not in parameters
    ]
    lines.append(f"<p><button>{escape(operation.name)}</button></p></form></main>")
    page = _page(html_form.page(" / ".join(names), lines))
    page.status = 405
    page.headers.append(allowed)
    return page


def _page(content: bytes) -> HttpResponse:
    return uncached_response(HttpDocument(content, HTML))


def _json(names: Sequence[str], value: object) -> HttpResponse:
    """Return a document that has a value at its path, as those of the tree do."""
    for name in reversed(names):
        value = {name: value}
    return json_response(value)


def _xml(names: Sequence[str], content: str) -> HttpResponse:
    """Return the same in XML; parts of a path that cannot be element names are attributes."""
    for name in reversed(names):
        is_element_name = _ELEMENT.fullmatch(name) is not None
        opening = name if is_element_name else f"resource id='{xml_form.attribute(name)}'"
        content = f"<{opening}>{content}</{name if is_element_name else 'resource'}>"
    return uncached_response(HttpDocument(f"{content}\n".encode(), XML))


def _without_form(segments: Sequence[str], tree: _OperationTree) -> tuple[tuple[str, ...], str]:
    """Return a path without its form, and the form; a path that names an operation has none."""
    target = _find(tree, tuple(segments[len(_TOP) :]))
    names, form = split_path_format(segments)
    if (target is not None and target.operation is not None) or form not in _FORMS:
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
        form_fields = parse_qsl(
            request.body.decode(errors="replace"),
            keep_blank_values=True,
            max_num_fields=MAX_QUERY_PARAMETERS,
        )
    except ValueError:
        raise HttpError(400, f"The form has more than {MAX_QUERY_PARAMETERS} parameters.") from None
    return {**request.query, **dict(form_fields)}


def _path() -> str:
    return link(_TOP)
