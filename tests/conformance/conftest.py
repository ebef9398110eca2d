"""A server for the tests of a module."""

from __future__ import annotations

from tests.support.server import module_server

server = module_server()
