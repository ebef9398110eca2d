"""Servers for the tests of an application; `amperage.testing.plugin` has fixtures for pytest.

    with run_server() as server, server.connect() as client:
        client.publish("orders", '{"id": 1}')

It needs the distribution `amperage`, which contains the server.
"""

from amperage.testing.server import (
    DEFAULT_CONFIGURATION,
    ServerStartError,
    TemporaryServer,
    run_server,
)

__all__ = ["DEFAULT_CONFIGURATION", "ServerStartError", "TemporaryServer", "run_server"]
