"""Makes and restores connections to replication destinations.

Each destination with an address has a task. While no link to it exists, the task tries the
addresses in their order, beginning with the first one, until the peer at one of them is that
destination. At the end of the list it waits, with exponential back-off, and begins again. While a
link exists that the other instance has opened, the task makes no connection.

Source: AMPS User Guide, Destination Server Failover.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from typing import TYPE_CHECKING, Final

from server.replication.transport.connection import ReplicationConnection
from server.security.outgoing.authenticators import make_credential_source
from server.security.outgoing.source import CredentialSource, CredentialSourceError
from server.transports.listener import TransportError
from server.transports.tls import TlsError, describe_tls_error, make_client_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from config_schema.spec import (
        DestinationSpec,
        InetAddr,
        ModuleSpec,
        OutgoingTransportSpec,
    )
    from server.engine.engine import Engine
    from server.replication.links.registry import LinkRegistry

_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0
_JITTER: Final = 0.25
"""Fraction by which a pause is varied at random, so that instances do not connect all at once."""

_CONNECT_SECONDS: Final = 10.0
"""Timeout for making a connection, including TLS."""

_MIN_LINK_SECONDS: Final = 5.0
"""The time that a link has to last for the back-off to start again from its shortest pause."""


class ReplicationConnector:
    """The connections to all destinations of an instance.

    Args:
        engine: the engine that serves them.
        links: the links that use the connections.

    Attributes:
        links: as above.
    """

    def __init__(self, engine: Engine, links: LinkRegistry) -> None:
        self.links: Final = links
        self._engine = engine
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def prepare(
        self, destinations: Iterable[DestinationSpec], modules: Sequence[ModuleSpec]
    ) -> list[DestinationConnector]:
        """Return the connectors of those destinations that have an address.

        Args:
            destinations: the destinations.
            modules: the modules that the configuration loads.

        Raises:
            TransportError: the TLS settings of a connection cannot be used.
        """
        connectors = [
            DestinationConnector(destination, modules, self._engine, self.links)
            for destination in destinations
            if any(transport.addresses for transport in destination.transports)
        ]
        for connector in connectors:
            connector.check_tls()
        return connectors

    def start(self, connectors: Iterable[DestinationConnector]) -> None:
        """Start connecting to destinations."""
        loop = asyncio.get_running_loop()
        for connector in connectors:
            self._tasks[connector.destination] = loop.create_task(connector.run())

    async def stop(self, destinations: Iterable[str]) -> None:
        """Stop connecting to destinations of these names; links stay open."""
        tasks = [self._tasks.pop(name) for name in destinations if name in self._tasks]
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):  # it had failed before
                self._engine.log.emit(
                    "01-0004", text="connection to a destination", error=repr(outcome)
                )

    async def close(self) -> None:
        """Stop connecting; links stay open."""
        await self.stop(list(self._tasks))


class DestinationConnector:
    """The connections to one destination.

    Args:
        spec: the destination.
        modules: the modules that the configuration loads.
        engine: the engine that serves the connections.
        links: the links that use them.

    Attributes:
        destination: its name.
    """

    def __init__(
        self,
        spec: DestinationSpec,
        modules: Sequence[ModuleSpec],
        engine: Engine,
        links: LinkRegistry,
    ) -> None:
        self.destination: Final = spec.name
        self._spec = spec
        self._engine = engine
        self._links = links
        self._links_changed = asyncio.Event()
        self._credential_sources: dict[int, CredentialSource] = {
            number: make_credential_source(transport.authenticator, modules)
            for number, transport in enumerate(spec.transports)
        }

    def check_tls(self) -> None:
        """Check that the TLS settings of the destination's connections can be used.

        Raises:
            TransportError: they cannot.
        """
        for transport in self._spec.transports:
            try:
                _context(transport)
            except TlsError as error:
                raise TransportError(
                    f"{transport.location}: connections to {self._spec.name} cannot be secured: "
                    f"{error}"
                ) from None

    async def run(self) -> None:
        """Connect whenever no link to the destination exists."""
        end_watch = self._links.watch(self._links_changed.set)
        try:
            await self._stay_connected()
        finally:
            end_watch()

    async def _stay_connected(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = _FIRST_PAUSE_SECONDS
        while True:
            await self._wait_disconnected()
            started_at = clock()
            if await self._try_addresses():
                await self._wait_disconnected()
                if clock() - started_at >= _MIN_LINK_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
                    continue
            factor = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - nothing is kept secret
            await asyncio.sleep(pause * factor)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def _wait_disconnected(self) -> None:
        while self._is_connected:
            self._links_changed.clear()
            await self._links_changed.wait()

    @property
    def _is_connected(self) -> bool:
        return self._links.is_connected(self._spec.name)

    async def _try_addresses(self) -> bool:
        """Try the addresses in order; return True if a link to the destination exists at the end.

        The link may also be one that the other instance has opened.
        """
        for number, transport in enumerate(self._spec.transports):
            for address in transport.addresses:
                if not self._is_connected:
                    await self._try_address(address, transport, self._credential_sources[number])
                if self._is_connected:
                    return True
        return False

    async def _try_address(
        self, address: InetAddr, transport: OutgoingTransportSpec, source: CredentialSource
    ) -> None:
        """Connect, and wait until the link has decided whether the peer is the destination."""
        loop = asyncio.get_running_loop()
        host = address.host or "localhost"
        outcome: asyncio.Future[bool] = loop.create_future()

        def report_outcome(is_established: bool) -> None:
            if not outcome.done():
                outcome.set_result(is_established)

        try:
            credentials = await source.credentials()
            context = _context(transport)
            engine = self._engine
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(
                    lambda: ReplicationConnection(
                        engine.scheduler,
                        engine.outboxes,
                        lambda link_connection: self._links.connect(
                            link_connection,
                            transport.name,
                            self._spec.name,
                            credentials,
                            report_outcome,
                            host,
                        ),
                    ),
                    host,
                    address.port,
                    ssl=context,
                )
        except socket.gaierror as problem:
            reason = (problem.strerror or str(problem)).lower()
            address_text = str(address)
            self._links.log_problem(
                "70-0020", address_text, address_text, reason, address=address_text, reason=reason
            )
            destination = self._links.replication.destinations[self._spec.name]
            destination.set_link_problem(f"{address_text}: {reason}")
        except TimeoutError:
            self._log_failure(address, f"no connection within {_CONNECT_SECONDS:.0f} seconds")
        except ssl.SSLError as problem:
            self._log_failure(address, describe_tls_error(problem))
        except (CredentialSourceError, TlsError) as problem:
            self._log_failure(address, str(problem))
        except UnicodeError as problem:  # not a valid host name
            self._log_failure(address, str(problem))
        except OSError as problem:
            self._log_failure(address, problem.strerror or str(problem))
        else:
            await outcome

    def _log_failure(self, address: InetAddr, reason: str) -> None:
        address_text, name = str(address), self._spec.name
        self._links.log_problem(
            "1E-0008",
            address_text,
            address_text,
            name,
            reason,
            destination=name,
            address=address_text,
            reason=reason,
        )


def _context(transport: OutgoingTransportSpec) -> ssl.SSLContext | None:
    """Return the TLS context of a transport, None without TLS; made anew each time: files change.

    Raises:
        TlsError: it cannot be made.
    """
    return None if transport.tls is None else make_client_context(transport.tls)
