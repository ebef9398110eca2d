"""Resources outside the tree: the first page, the configuration, and the state of queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from email.utils import formatdate
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from server.admin.documents import html_form
from server.admin.http.messages import (
    HTML,
    XML,
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
    json_response,
)
from server.admin.monitoring import CONFIGURATION, DETAILS, MESSAGES, QUEUES
from server.admin.tree import INSTANCE, ROOT, TREE_NODES, TreeTarget
from server.storage.journal import JournalUnreadableError

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.admin.access import AccessControl, Requester
    from server.admin.csrf import CsrfProtection
    from server.admin.engine_calls import EngineCalls
    from server.admin.monitoring import MonitoringPages

QueueDetails = Callable[[str, str], "dict[str, object] | None"]
"""Returns a document about a queue by its message type and name; called on the engine's thread."""


class RootPage:
    """`/`: a sign of life, and links to the rest.

    Programs search its source for `__sql=true`, the sign of a transport for queries.

    Args:
        spec: the instance's description.
        has_queries: whether there is one (SQLTransport).
    """

    def __init__(self, spec: InstanceSpec, *, has_queries: bool) -> None:
        description = f"<p>{escape(spec.description)}</p>" if spec.description else ""
        lines = [
            f"<main><h1>{escape(spec.name)}</h1>{description}",
            f'<ul><li><a href="/{ROOT}">Statistics of the host and this instance</a></li>',
            f'<li><a href="/{ROOT}.json">The same as JSON</a></li>',
            f'<li><a href="/{ROOT}/{INSTANCE}/{CONFIGURATION}">Its configuration</a></li>',
            f'<li><a href="/{ROOT}/administrator">Operations on it</a></li>',
            "</ul></main>",
        ]
        source = f'<meta name="console" content="__sql={"true" if has_queries else "false"}">'
        self._document = HttpDocument(html_form.page(spec.name, lines, source), HTML)

    async def handle_request(self, _request: HttpRequest, _requester: Requester) -> HttpResponse:
        """Return the page."""
        return HttpResponse(self._document)


class ConfigurationVersion(NamedTuple):
    """A configuration that the instance runs.

    Attributes:
        document: its text, without secrets.
        used_since: the time since when the instance runs it.
        spec: the instance that it describes.
        secrets: the values of secret variables in it.
    """

    document: HttpDocument
    used_since: str
    spec: InstanceSpec
    secrets: Collection[str]


class ConfigurationText:
    """The configuration that the instance runs, which a reload replaces.

    Args:
        text: the whole of its text, without secrets.
        spec: the instance that it describes.
        secrets: the values of secret variables in it.

    Attributes:
        version: the configuration; one attribute, as threads read it while a reload replaces it.
    """

    version: ConfigurationVersion

    def __init__(self, text: str, spec: InstanceSpec, secrets: Collection[str] = ()) -> None:
        self.set(text, spec, secrets)

    def set(self, text: str, spec: InstanceSpec, secrets: Collection[str]) -> None:
        """Replace it; from any thread."""
        self.version = ConfigurationVersion(
            HttpDocument(text.encode(), XML), formatdate(time.time(), usegmt=True), spec, secrets
        )


class ConfigurationPage:
    """The configuration that the instance runs, as its author spelled it.

    Args:
        text: its text.
        access: checks the requester's entitlement.
    """

    def __init__(self, text: ConfigurationText, access: AccessControl) -> None:
        self._text = text
        self._access = access

    async def handle_request(self, _request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return the configuration.

        Raises:
            HttpError: the requester may not see it.
        """
        await self._access.require_access(requester, f"/{ROOT}/{INSTANCE}/{CONFIGURATION}")
        version = self._text.version
        return HttpResponse(version.document, last_modified=version.used_since)


class QueueStatePage:
    """The present state of a queue, in more detail than samples have.

    Args:
        monitoring: has the queues of the last sample.
        access: checks the requester's entitlement.
        csrf: refuses pages of other sites that want to read messages.
        engine_calls: runs the other functions on the engine's thread.
        queue_details: returns a queue's details; called on the engine's thread.
        queue_messages: returns its first messages, likewise.
    """

    def __init__(
        self,
        monitoring: MonitoringPages,
        access: AccessControl,
        csrf: CsrfProtection,
        engine_calls: EngineCalls,
        queue_details: QueueDetails,
        queue_messages: QueueDetails,
    ) -> None:
        self._monitoring = monitoring
        self._access = access
        self._csrf = csrf
        self._engine_calls = engine_calls
        self._functions = {DETAILS: queue_details, MESSAGES: queue_messages}

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return a queue's state or its messages; other paths below queues are the tree's.

        Raises:
            HttpError: there is no such queue, or the requester may not see it.
        """
        segments = request.segments
        part = segments[-1].removesuffix(".json")
        if len(segments) != len(_QUEUES) + 2 or part not in self._functions:
            return await self._monitoring.handle_request(request, requester)
        identity = segments[-2]
        tree = await self._monitoring.latest_tree()
        target = TreeTarget(TREE_NODES[QUEUES], identity)
        await self._access.require_access(requester, "/" + "/".join([*target.names, part]))
        values = tree.values(target)
        if values is None or target.node.resource is None:
            queues_path = "/".join(_QUEUES)
            raise HttpError(404, f"There is no queue {identity!r}; /{queues_path} has them all.")
        fields = [field.name for field in target.node.resource.fields]
        fields_by_name = dict(zip(fields, map(str, values), strict=True))
        message_type, topic = fields_by_name["message_type"], fields_by_name["topic"]
        if part == MESSAGES:
            self._csrf.refuse_foreign_request(request)
            await self._access.require_topic(requester, topic)
        function = self._functions[part]
        try:
            found = await self._engine_calls.call(lambda: function(message_type, topic))
        except JournalUnreadableError as error:
            raise HttpError(503, f"The log cannot be read: {error}.") from None
        if found is None:
            raise HttpError(404, f"There is no queue {identity!r} any more.")
        return json_response(_as_texts(found))


_QUEUES = (ROOT, *QUEUES.split("/"))


def _as_texts(value: object) -> object:
    """Return the same with numbers as texts, as in all documents."""
    if isinstance(value, dict):
        return {name: _as_texts(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_as_texts(element) for element in value]
    return f"{value:.6f}" if isinstance(value, float) else str(value)
