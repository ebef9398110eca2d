"""Connections between instances, as links see them: bytes in, bytes out.

Large amounts of replicated log entries are sent on a separate thread (`BulkSender`), unless the
connection is encrypted. Small amounts are written by the event loop. Each of the two sends only
when the other one has nothing left to send.

An accepted connection is in the `PreLogonLimits` until the identity of its peer is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from server.engine.pre_logon_limits import PreLogonConnection
from server.engine.scheduler import LONG_READ_SIZE
from server.replication.links.link_stage import LinkStage
from server.replication.transport.bulk_sender import MAX_UNSENT_BYTES, BulkSender
from server.replication.transport.peer_addresses import HostAddresses, comes_from, hosts_of, resolve
from server.replication.transport.security_check import shortfall
from server.security.authentication import Admission, LogonCredentials, LogonOrigin
from server.security.deferred import AnswerFuture, AnswerOrFuture, on_answer
from server.security.permissions import NO_PERMISSIONS, Permission, Permissions, Permit
from server.storage.journal import JournalTopic
from server.topics.system.audit import AuditActor
from server.transports.connection import TransportContext, printable_address, with_certificate_user

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.engine.scheduler import Scheduler
    from server.replication.core import Hello
    from server.replication.links.link import ReplicationLink
    from server.replication.links.registry import LinkRegistry
    from server.topics.subscriptions.delivery.outbox import Outboxes

_BULK_SIZE: Final = 16 << 10
"""Bytes from which on sending costs more than the transfer to another thread."""

_BULK_PERIOD_S: Final = 0.01
"""Seconds after such a send during which small amounts use that thread, too."""

_LINGER_SECONDS: Final = 5.0


class ReplicationConnection(asyncio.Protocol):
    """A connection between two instances, made by either of them; a `LinkConnection`.

    Args:
        scheduler: shares the engine's time.
        outboxes: the clients' output buffers, which are flushed after each read.
        begin: makes the link when the connection is established.

    Attributes:
        address: the peer's address.
        is_ready: whether nearly all data passed to it has been sent.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        outboxes: Outboxes,
        begin: Callable[[ReplicationConnection], ReplicationLink],
    ) -> None:
        self.address = ""
        self.is_ready = True
        self._scheduler = scheduler
        self._outboxes = outboxes
        self._make_link = begin
        self._transport: asyncio.Transport | None = None
        self._link: ReplicationLink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bulk_sender: BulkSender | None = None
        self._last_bulk_send_s = 0.0
        self._is_closing = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the link."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are by duck typing only
        self._transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
        self._loop = asyncio.get_running_loop()
        self.address = printable_address(transport.get_extra_info("peername"))
        self._create_link()

    def _create_link(self) -> None:
        self._link = self._make_link(self)

    def data_received(self, data: bytes) -> None:
        """Feed the bytes to the link, and flush the output of all clients that they affect."""
        if self._link is None:
            return
        scheduler = self._scheduler
        first = len(self._outboxes.pending_outboxes)
        self._link.feed(data)
        if len(data) >= LONG_READ_SIZE:
            scheduler.flush_while_busy()
        else:
            scheduler.flush(first)

    def pause_writing(self) -> None:
        """Stop sending: the transport's buffer is full."""
        self.is_ready = False

    def resume_writing(self) -> None:
        """Resume sending: the buffer of the transport or of the bulk sender has drained."""
        self.is_ready = True
        if self._link is not None:
            self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        """Notify the link: the peer is gone, or the link has been closed."""
        if self._bulk_sender is not None:
            self._bulk_sender.stop()
        link, self._link = self._link, None
        if link is not None:
            link.connection_lost()

    # called by the link

    def send(self, *data: bytes) -> None:
        """See `LinkConnection`."""
        transport = self._transport
        if transport is None or self._is_closing or transport.is_closing():
            return
        bulk_sender = self._bulk_sender_for(transport, sum(map(len, data)))
        if bulk_sender is None:
            transport.writelines(data)
        elif not bulk_sender.send(data):
            self.is_ready = False

    def _bulk_sender_for(self, transport: asyncio.Transport, size: int) -> BulkSender | None:
        """Return the bulk sender for `size` bytes; None if the event loop sends them."""
        bulk_sender, loop = self._bulk_sender, self._loop
        if loop is None or (bulk_sender is not None and not bulk_sender.is_idle):
            return bulk_sender
        now = loop.time()
        if size >= _BULK_SIZE:
            self._last_bulk_send_s = now
        elif bulk_sender is None or now > self._last_bulk_send_s + _BULK_PERIOD_S:
            return None
        if transport.get_write_buffer_size() or transport.get_extra_info("sslcontext"):
            return None
        if bulk_sender is None:
            connected_socket = transport.get_extra_info("socket")
            with suppress(OSError, RuntimeError):  # no free descriptor, or no thread can start
                bulk_sender = self._bulk_sender = BulkSender(
                    connected_socket,
                    loop.call_soon_threadsafe,
                    self.resume_writing,
                    transport.abort,
                )
        return bulk_sender

    def pause(self) -> None:
        """See `LinkConnection`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """See `LinkConnection`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """See `LinkConnection`."""
        transport = self._transport
        if transport is None or self._is_closing or transport.is_closing():
            return
        self._is_closing = True
        if self._bulk_sender is not None:
            self._bulk_sender.finish(transport.close)
        else:
            transport.close()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, transport.abort)

    def disconnect(self, reason: str) -> None:  # noqa: ARG002 - logged where it is known
        """Close the link."""
        if self._link is not None:
            self._link.close()
        else:
            self.close()


class AcceptedReplicationConnection(ReplicationConnection):
    """A connection that another instance has made; a `LinkAdmission`.

    Args:
        transport_context: the context of the transport that has accepted the connection.
        links: all links of this instance.
    """

    def __init__(self, transport_context: TransportContext, links: LinkRegistry) -> None:
        self._transport_context = transport_context
        self._links = links
        self._pre_logon: PreLogonConnection | None = None
        self._user = ""
        self._instance = ""
        self._is_authenticated = False
        self._certificate_user = ""
        self._permissions: Permissions = NO_PERMISSIONS
        self._pending_admission: AnswerFuture[str | None] | None = None
        self._host_addresses: HostAddresses = {}
        self._resolve_task: asyncio.Task[None] | None = None
        transport = transport_context.connection_context.transport
        super().__init__(
            transport_context.engine.scheduler,
            transport_context.engine.outboxes,
            lambda link_connection: links.accept(link_connection, transport, self),
        )

    def disconnect_for_limit(self, problem: str) -> None:
        """Disconnect an instance that has not completed its handshake.

        Args:
            problem: the limit that it has exceeded.
        """
        if self._link is not None:
            self._link.refuse(problem)

    def data_received(self, data: bytes) -> None:
        """See `ReplicationConnection`."""
        super().data_received(data)
        if self._pre_logon is not None and self._link is not None:
            if self._link.stage is LinkStage.HANDSHAKE:
                self._pre_logon.update_unfinished_bytes(self._link.buffered_bytes)
            else:
                self._end_pre_logon()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `ReplicationConnection`."""
        self._transport_context.connections.discard(self)
        self._end_pre_logon()
        self._permissions.release()
        self._permissions = NO_PERMISSIONS
        if self._pending_admission is not None:
            self._pending_admission.cancel()
        super().connection_lost(exc)

    def _create_link(self) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101 - connection_made has set it
        transport_context = self._transport_context
        accepted_socket = transport.get_extra_info("socket")
        if not transport_context.is_open or not transport_context.descriptor_reserve.has_room(
            accepted_socket.fileno()
        ):
            transport.abort()
            return
        transport_context.connections.add(self)
        super()._create_link()
        self._pre_logon = PreLogonConnection(
            transport_context.engine.pre_logon_limits, self.disconnect_for_limit
        )

    def _end_pre_logon(self) -> None:
        if self._pre_logon is not None:
            self._pre_logon.end()
            self._pre_logon = None

    @property
    def user(self) -> str:
        """The user name of the other instance's logon."""
        return self._user

    # the identity of the instance

    @property
    def is_verified(self) -> bool:
        """See `LinkAdmission`."""
        if self._permissions.allows_instance(self._instance):
            return self._is_authenticated
        named = {self._user if self._is_authenticated else "", self._certificate_user}
        return self._instance in named

    @property
    def is_unverified_user(self) -> bool:
        """See `LinkAdmission`."""
        return self._is_authenticated and not self.is_verified

    def check_destination(self, destination: DestinationSpec) -> str | None:
        """See `LinkAdmission`."""
        transport = self._transport
        context = None if transport is None else transport.get_extra_info("sslcontext")
        return shortfall(context, destination.transports) or self._identity_problem(destination)

    def _identity_problem(self, destination: DestinationSpec) -> str | None:
        """Return why the instance is not accepted as a Destination; None if it is."""
        if self.is_verified:
            return None
        hosts = hosts_of(destination)
        if self.is_unverified_user:
            if not hosts and all(
                self.may_replicate(JournalTopic(topic.message_type, topic.name))
                for topic in destination.topics
            ):
                return None
            return (
                f"it has logged on as {self._user!r}, who is not known to be the instance "
                f"{self._instance}: name the user so, or have its permissions name the instance "
                "(instances)"
            )
        if not hosts or comes_from(self._peer_host, hosts, self._host_addresses):
            return None
        return f"it comes from {self._peer_host}, and the destination is at {', '.join(hosts)}"

    def destination_warning(self, destination: DestinationSpec) -> str | None:
        """See `LinkAdmission`."""
        if self.is_verified or hosts_of(destination):
            return None
        if self.is_unverified_user:
            return (
                f"the Destination has no InetAddr, and the user {self._user!r} is not known to be "
                "that instance"
            )
        transport = self._transport_context.connection_context.transport
        return (
            f"the Destination has no InetAddr, and transport {transport} does not authenticate "
            "peers: add an Authentication, or certificates"
        )

    @property
    def _peer_host(self) -> str:
        assert self._transport is not None  # noqa: S101 - data has been received from there
        return str(self._transport.get_extra_info("peername")[0])

    # its permissions

    def check_topic(self, topic: JournalTopic) -> str | None:
        """See `LinkAdmission`.

        Source: AMPS User Guide, Entitlement Resource and Permission Types: replication allowed.
        """
        permit = self._permit(topic)
        if permit.is_allowed:
            return None
        action, transport = (
            Permission.REPLICATE_TOPIC.value,
            self._transport_context.connection_context.transport,
        )
        resource = self._resource(topic)
        self.audit_refusal(action, resource, permit.rule)
        return (
            f"{self._user!r} is not entitled to {action} {resource!r}:"
            f" transport {transport} has to allow it"
        )

    def may_replicate(self, topic: JournalTopic) -> bool:
        """See `LinkAdmission`."""
        return self._permit(topic).is_allowed

    def _permit(self, topic: JournalTopic) -> Permit:
        return self._permissions.get_permit(Permission.REPLICATE_TOPIC, self._resource(topic))

    def _resource(self, topic: JournalTopic) -> str:
        return self._transport_context.engine.sow_registry.entitlement_resource(
            topic.message_type, topic.name
        )

    def audit_refusal(self, action: str, resource: str, reason: str) -> None:
        """See `LinkAdmission`."""
        self._transport_context.engine.audit.report_refusal(
            self._audit_actor(self._user), action, resource, reason
        )

    def _audit_actor(self, user: str) -> AuditActor:
        connection_context = self._transport_context.connection_context
        return AuditActor(
            user, self.address, connection_context.transport, module=connection_context.auth_module
        )

    # its logon

    def admit(self, hello: Hello) -> AnswerOrFuture[str | None]:
        """See `LinkAdmission`.

        Source: AMPS User Guide, Entitlement Resource and Permission Types: replication_logon.
        """
        assert self._transport is not None  # noqa: S101 - data has been received from there
        user = hello.user
        self._instance = hello.instance
        context = with_certificate_user(self._transport_context.connection_context, self._transport)
        self._certificate_user = context.certificate_user
        origin = LogonOrigin(
            context.transport, self.address, user, certificate_user=context.certificate_user
        )
        credentials = LogonCredentials(user, hello.password, explicit=True, origin=origin)
        result: AnswerFuture[str | None] = AnswerFuture()

        def authenticated(admission: Admission) -> None:
            if admission.granted:
                self._is_authenticated = admission.is_proven
                on_answer(
                    context.entitlement.acquire_permissions(admission.user),
                    partial(entitled, admission.user),
                )
            else:
                reason = admission.detail or admission.reason
                self._transport_context.engine.audit.report_refused_logon(
                    self._audit_actor(user), reason
                )
                result.set_result(
                    f"the logon as {user!r} is not accepted: {admission.reason}; it is made with "
                    "the Authenticator of the Destination, and checked by transport "
                    f"{context.transport}"
                )

        def entitled(name: str, permissions: Permissions) -> None:
            if self._link is None:  # the connection is gone
                permissions.release()
                return
            self._permissions.release()
            self._user, self._permissions = name, permissions
            refusal = self._logon_refusal()
            if refusal is not None or self._is_authenticated:
                result.set_result(refusal)
            else:
                self._resolve_hosts(hello, result)

        decision = context.authenticator.begin_logon().authenticate(credentials)
        if isinstance(decision, AnswerFuture):
            result.on_cancel(decision.cancel)
        self._pending_admission = result
        on_answer(decision, authenticated)
        return result

    def _logon_refusal(self) -> str | None:
        """Return why the user must not replicate as the instance that it claims to be."""
        audit, actor, name = (
            self._transport_context.engine.audit,
            self._audit_actor(self._user),
            self._user,
        )
        transport = self._transport_context.connection_context.transport
        permit = self._permissions.get_permit(Permission.REPLICATION_LOGON, "")
        if not permit.is_allowed:
            audit.report_refused_logon(actor, permit.rule)
            return (
                f"{name!r} is not entitled to replicate to this instance: transport "
                f"{transport} has to allow it replication_logon"
            )
        if self._permissions.allows_instance(self._instance) is False:
            audit.report_refused_logon(actor, f"instances does not name {self._instance}")
            return (
                f"{name!r} is not entitled to be the instance {self._instance}: the permissions of "
                f"the user at transport {transport} have to name it (instances)"
            )
        audit.report_logon(actor, "")
        return None

    def _resolve_hosts(self, hello: Hello, result: AnswerFuture[str | None]) -> None:
        """Resolve the hosts of the Destinations that the instance may be, then admit it."""
        hosts: set[str] = set()
        for destination in self._links.replication.destinations.values():
            if destination.spec.is_for(hello.instance, hello.group):
                hosts |= hosts_of(destination.spec)
        if not hosts:
            result.set_result(None)
            return

        async def find() -> None:
            self._host_addresses = await resolve(hosts)
            result.set_result(None)

        self._resolve_task = asyncio.get_running_loop().create_task(find())


class ReplicationUsers:
    """The users that replicate to one transport; see `TransportSecurity.forget_functions`.

    Args:
        transport_context: the context of the transport.
    """

    def __init__(self, transport_context: TransportContext) -> None:
        self._transport_context = transport_context

    def forget(self, user: str | None = None) -> None:
        """Disconnect a user's instances, or all, so that they log on again with new permissions."""
        for connection in list(self._transport_context.connections):
            if isinstance(connection, AcceptedReplicationConnection) and (
                user is None or (user and user == connection.user)
            ):
                connection.disconnect("entitlement reset")
