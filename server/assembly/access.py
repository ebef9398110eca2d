"""What a user may do on an instance, and why: for `ampServer --explain-access`.

The modules are made as for a start, and asked as when the user logs on; no transport is opened. A
web service or a directory that a module needs is asked, too. Nobody shows a password here: it is
taken for granted that the user could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from config_schema.catalogue import ModuleKind
from server.admin.trail import TRANSPORT as ADMIN
from server.assembly.access_resources import resource_of
from server.assembly.catalogue import ProgramCatalogue
from server.assembly.provision import provision_functions
from server.security.authentication import AcceptAll, Credentials, Origin, RefuseAll
from server.security.failed_logons import Guarded
from server.security.http_entitlement.modules import WebEntitlement
from server.security.later import when_decided
from server.security.modules import make_authenticator, make_entitlement
from server.security.permissions import Permission, Permit
from server.security.switches import Switches
from server.security.users.modules import UsersAuthenticator
from server.topics.topic import is_reserved

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec, ModuleUse
    from server.base.log import Log
    from server.expressions.functions.registry import Functions
    from server.security.authentication import Authenticator
    from server.security.entitlement import Entitlement
    from server.security.permissions import Permissions

_PATHS: Final = ("/amps/instance", "/amps/host", "/amps/administrator", "/console", "/metrics")
"""Paths of the admin interface that are spoken of in any case."""

_ASKED_WITH_CREDENTIALS: Final = (
    "the service says what users may do when it is shown their password"
)

_OWN: Final = "nobody but the server publishes to it"

_READ: Final = "read"
_WRITE: Final = "write"


@dataclass(frozen=True, slots=True)
class Module:
    """A module that decides.

    Attributes:
        name: what the configuration calls it; empty where it names none.
        library: where it comes from; empty for one that need not be loaded.
        help: what it does.
        says: what it says of the user.
    """

    name: str
    library: str
    help: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """What is said about one thing that the user might do.

    Attributes:
        what: `log on`, `replicate`, or a topic or path.
        access: `read`, `write`, or empty for logons.
        permit: what is said.
    """

    what: str
    access: str
    permit: Permit


@dataclass(frozen=True, slots=True)
class Entrance:
    """A transport, or the admin interface.

    Attributes:
        transport: its name; `amps-admin` for the admin interface.
        address: where it listens.
        authentication: who decides on logons.
        entitlement: who decides on the rest.
        admits: whether a logon can succeed.
        user: as whom entitlement is asked; empty for nobody in particular.
        rights: what the user may do, as far as it can be known.
    """

    transport: str
    address: str
    authentication: Module
    entitlement: Module
    admits: bool
    user: str
    rights: tuple[Right, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        user: about whom.
        topics: topics besides those of the configuration.
        paths: paths of the admin interface, likewise.
    """

    user: str
    topics: Sequence[str] = ()
    paths: Sequence[str] = ()


async def explain_access(spec: InstanceSpec, question: Question, log: Log) -> list[Entrance]:
    """Find out what a user may do.

    Args:
        spec: the instance.
        question: what is asked.
        log: told what modules say to the log.

    Raises:
        ProvisionError: a function of the configuration cannot be made.
        SecurityError: a module cannot be made.
    """
    asking = _Asking(spec, question, provision_functions(spec, log), log)
    found = []
    for transport in spec.transports:
        address = transport.file_name or str(transport.inet_addr or "")
        wanted = asking.of_replication() if transport.is_replication else asking.of_client()
        uses = transport.authentication, transport.entitlement
        found.append(
            await asking.entrance(
                transport.name, address, uses, list(wanted), transport.message_type
            )
        )
    admin = spec.admin
    if admin is not None and admin.inet_addr is not None:
        uses = admin.authentication, admin.entitlement
        wanted = asking.of_admin()
        found.append(await asking.entrance(ADMIN, str(admin.inet_addr), uses, list(wanted)))
    return found


@dataclass(frozen=True, slots=True)
class _Asking:
    spec: InstanceSpec
    question: Question
    functions: Functions
    log: Log

    def of_client(self) -> Iterator[tuple[str, str, Permission]]:
        """What a client might do: what it is called, the access, and the permission."""
        yield "log on", "", Permission.LOGON
        for topic in self._topics():
            yield topic, _READ, Permission.READ_TOPIC
            yield topic, _WRITE, Permission.WRITE_TOPIC

    def of_replication(self) -> Iterator[tuple[str, str, Permission]]:
        """The same for another instance."""
        yield "replicate", "", Permission.REPLICATION_LOGON
        for topic in self._topics():
            yield topic, "replicate", Permission.REPLICATE_TOPIC

    def of_admin(self) -> Iterator[tuple[str, str, Permission]]:
        """The same for a visitor of the admin interface."""
        for path in dict.fromkeys((*_PATHS, *self.question.paths)):
            yield path, _READ, Permission.READ_ADMIN

    async def entrance(
        self,
        transport: str,
        address: str,
        uses: tuple[ModuleUse | None, ModuleUse | None],
        wanted: Iterable[tuple[str, str, Permission]],
        message_type: str | None = None,
    ) -> Entrance:
        """Ask the modules of a transport."""
        around = Switches().surroundings(transport, self.spec.modules, self.functions, self.log)
        authentication = uses[0] or self.spec.authentication
        entitlement = uses[1] or self.spec.entitlement
        admitted, user, says = _authenticate(
            make_authenticator(authentication, around), self.question.user
        )
        authenticating = self._module(authentication, ModuleKind.AUTHENTICATION, says)
        module = make_entitlement(entitlement, around)
        needs_password = _ASKED_WITH_CREDENTIALS if isinstance(module, WebEntitlement) else ""
        entitling = self._module(entitlement, ModuleKind.ENTITLEMENT, needs_password)
        rights: tuple[Right, ...] = ()
        if admitted and not needs_password:
            permissions = await _entered(module, user)
            rights = tuple(self._right(permissions, *one, message_type) for one in wanted)
            permissions.leave()
        return Entrance(transport, address, authenticating, entitling, admitted, user, rights)

    def _right(
        self,
        permissions: Permissions,
        what: str,
        access: str,
        permission: Permission,
        message_type: str | None,
    ) -> Right:
        """What is said about one thing that the user might do."""
        if permission is Permission.READ_ADMIN or not access:
            return Right(what, access, permissions.permit(permission, what if access else ""))
        resource = resource_of(self.spec, what, message_type)
        permit = permissions.permit(permission, resource)
        if resource != what:
            permit = replace(permit, rule=f"as {resource}, which has its Pattern: {permit.rule}")
        if permission is Permission.WRITE_TOPIC and permit.allowed and is_reserved(what):
            permit = self._without_publishing(what, permit)
        return Right(what, access, permit)

    def _without_publishing(self, topic: str, permit: Permit) -> Permit:
        """What is left of a permit to write to a topic that the server alone publishes to."""
        if any(one.name == topic for one in self.spec.sow):
            return replace(permit, rule=f"{permit.rule}; to delete records: {_OWN}")
        return Permit(False, rule=_OWN)

    def _topics(self) -> Iterable[str]:
        recorded = self.spec.transaction_log
        journaled = () if recorded is None else recorded.topics
        return dict.fromkeys(
            (
                *(topic.name for topic in self.spec.sow),
                *(topic.name for topic in journaled if not topic.is_expression),
                *self.question.topics,
            )
        )

    def _module(self, use: ModuleUse | None, kind: ModuleKind, says: str = "") -> Module:
        if use is None:
            return Module("", "", "none is configured: everything is allowed", says)
        catalogue = ProgramCatalogue()
        built_in = catalogue.modules(kind).get(use.module)
        if built_in is not None:
            return Module(use.module, "", built_in.help, says)
        loaded = next(one for one in self.spec.modules if one.name == use.module)
        library = catalogue.libraries.get(loaded.library_name)
        words = "written in Python" if library is None else library.uses[kind].help
        return Module(use.module, loaded.library, words, says)


def _authenticate(module: Authenticator, user: str) -> tuple[bool, str, str]:
    """Whether a user might log on, as whom, and what there is to say about that."""
    inner = module.module if isinstance(module, Guarded) else module
    if isinstance(inner, AcceptAll | RefuseAll):
        by_certificate = isinstance(inner, AcceptAll) and inner.trust_certificate
        origin = Origin(certificate_user=user)
        admission = inner.step(Credentials(user, "", explicit=True, origin=origin))
        if admission.granted and by_certificate:
            return True, user, "asks for a certificate that names the user"
        if admission.granted and user and not admission.user:
            return True, "", "vouches for no name: entitlement is asked about nobody in particular"
        return admission.granted, admission.user, admission.reason if not admission.granted else ""
    if isinstance(inner, UsersAuthenticator):
        return inner.explain(user)
    return True, user, "decides when the user logs on; it is taken for granted that it agrees"


async def _entered(module: Entitlement, user: str) -> Permissions:
    """What a user may do, when that is known."""
    answer: asyncio.Future[Permissions] = asyncio.get_running_loop().create_future()
    when_decided(module.enter(user), answer.set_result)
    return await answer
