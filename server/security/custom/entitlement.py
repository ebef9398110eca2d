"""Custom entitlement modules. See `library`.

The library has a function

    def create_entitlement(name: str, options: Mapping[str, Sequence[str]]) -> module

which returns an object with

    async def permissions(self, user: str) -> Mapping[str, Any]

The result is a permission document (`permission_document.py`), as a dict. `user` is the name that
authentication determined, empty without one; `user_name` of the document has no effect, since the
name is already decided. If the call takes longer than 30 seconds, raises, or returns anything else,
the user may do nothing.

Concurrent logons of a user share one call. Its result is cached until entitlement is reset; a
failure applies only to the logons that wait for it. The optional function `forget(user)` is called
at a reset, with None for all users.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from server.security.custom.library import clear_module_cache, make_module
from server.security.deferred import AnswerFuture, on_answer
from server.security.permission_document import DocumentError, make_document
from server.security.permissions import NO_PERMISSIONS

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec, Options
    from server.expressions.functions.registry import Functions
    from server.security.async_worker import AsyncWorker
    from server.security.deferred import AnswerOrFuture
    from server.security.permissions import Permissions
    from server.util.log_protocol import ServerLog

ENTRY_POINT: Final = "create_entitlement"

_MAX_USERS: Final = 10_000
"""Limit of the cache; beyond it, the least recently used entry is dropped, and requested again."""


class EntitlementModule(Protocol):
    """The object that a library makes."""

    async def permissions(self, user: str) -> Mapping[str, Any]:
        """Return the permission document of a user; see above."""


def load_entitlement(
    module: ModuleSpec, options: Options, functions: Functions, worker: AsyncWorker, log: ServerLog
) -> CustomEntitlement:
    """Load a library and make its entitlement module.

    Args:
        module: the module as the configuration loads it.
        options: its options, where it is used.
        functions: the functions that filters of its documents may call.
        worker: runs its calls.
        log: receives an entry when one fails.

    Raises:
        CustomModuleError: the library cannot be loaded, or the made object cannot be used.
        LibraryError: likewise.
    """
    instance = make_module(module, options, ENTRY_POINT, "permissions")
    return CustomEntitlement(
        module.name, cast("EntitlementModule", instance), functions, worker, log
    )


class CustomEntitlement:
    """Adapts a module of a library to the engine.

    Args:
        name: its name in the configuration.
        module: the module.
        functions: the functions that filters of its documents may call.
        worker: runs its calls.
        log: receives an entry when one fails.
    """

    def __init__(
        self,
        name: str,
        module: EntitlementModule,
        functions: Functions,
        worker: AsyncWorker,
        log: ServerLog,
    ) -> None:
        self._name = name
        self._module = module
        self._functions = functions
        self._worker = worker
        self._log = log
        self._permissions: OrderedDict[str, Permissions] = OrderedDict()
        self._pending: dict[str, AnswerFuture[Permissions]] = {}

    def acquire_permissions(self, user: str) -> AnswerOrFuture[Permissions]:
        """See `Entitlement`."""
        cached = self._permissions.get(user)
        if cached is not None:
            self._permissions.move_to_end(user)
            return cached
        pending = self._pending.get(user)
        return self._request_permissions(user) if pending is None else pending

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        if user is None:
            self._permissions.clear()
            self._pending.clear()
        else:
            self._permissions.pop(user, None)
            self._pending.pop(user, None)
        clear_module_cache(self._module, self._name, self._log, user)

    def _request_permissions(self, user: str) -> AnswerFuture[Permissions]:
        pending: AnswerFuture[Permissions] = AnswerFuture()
        self._pending[user] = pending
        answer = self._worker.submit(
            partial(self._load_permissions, user), partial(self._log_refusal, user)
        )
        answer.add_done_callback(partial(self._on_permissions, user, pending))
        return pending

    def _on_permissions(
        self, user: str, pending: AnswerFuture[Permissions], answer: Permissions
    ) -> None:
        if self._pending.get(user) is not pending:  # forgotten meanwhile: the answer is stale
            on_answer(self.acquire_permissions(user), pending.set_result)
            return
        del self._pending[user]
        if answer is not NO_PERMISSIONS:
            self._permissions[user] = answer
            if len(self._permissions) > _MAX_USERS:
                self._permissions.popitem(last=False)
        pending.set_result(answer)

    async def _load_permissions(self, user: str) -> Permissions:
        content: object = await self._module.permissions(user)
        if not isinstance(content, Mapping):
            expected = f"expected a permission document, not {type(content).__name__}"
            return self._log_refusal(user, expected)
        try:
            return make_document(dict(content), self._functions)
        except DocumentError as error:
            return self._log_refusal(user, f"permission document: {error}")

    def _log_refusal(self, user: str, problem: str) -> Permissions:
        self._log.emit("25-0040", module=self._name, user=user, problem=problem)
        return NO_PERMISSIONS
