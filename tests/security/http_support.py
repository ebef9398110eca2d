"""Servers that ask a web service, and logons on them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.server import RunningServer, running_server
from tests.support.web_service import Answer, Asked, Reply, WebService, everything, web_service

MODULE: Final = """
<Modules>
  <Module>
    <Name>web</Name><Library>libamps_http_entitlement.so</Library>
    <Options>
      <ResourceURI>http://127.0.0.1:{port}/{{{{USER_NAME}}}}.json</ResourceURI>
      {options}
    </Options>
  </Module>
</Modules>
<Authentication><Module>web</Module></Authentication>
<Entitlement><Module>web</Module></Entitlement>
"""

REFUSED: Final = "the credentials are not accepted"
UNDECIDED: Final = "the credentials cannot be checked at the moment"


@contextmanager
def served(
    directory: Path, answer: Answer, options: str = "", elements: str = "", **arguments: Any
) -> Iterator[tuple[RunningServer, WebService]]:
    """A server that asks a service."""
    protocol = arguments.pop("protocol", "HTTP/1.0")
    with web_service(answer, protocol=protocol) as service:
        text = MODULE.format(port=service.port, options=options) + elements
        with running_server(directory, elements=text, **arguments) as server:
            yield server, service


def basic(users: dict[str, str], granted: Callable[[str], Reply] | None = None) -> Answer:
    """A service that wants to be asked with Basic."""

    def answer(asked: Asked) -> Reply:
        shown = asked.headers.get("authorization")
        if shown is None:
            return Reply(401, b"who is it?", {"WWW-Authenticate": 'Basic realm="entitlement"'})
        user, _, password = base64.b64decode(shown.removeprefix("Basic ")).decode().partition(":")
        if users.get(user) != password:
            return Reply(403)
        return everything() if granted is None else granted(user)

    return answer


def log_on(server: RunningServer, user: str, password: str, **keys: Any) -> dict[str, Any]:
    """Log on, and go; the ack."""
    with server.connect() as peer:
        return peer.log_on(user_id=user, pw=password, **keys)


def refused(ack: dict[str, Any], detail: str) -> bool:
    """Whether a logon was refused, for a reason."""
    found = ack["status"], ack["reason"], ack.get("detail")
    return found == ("failure", "auth failure", detail)


ADMIN: Final = """
<Admin>
  <InetAddr>127.0.0.1:{port}</InetAddr><WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
</Admin>
"""
ANN: Final = "Basic " + base64.b64encode(b"ann:1").decode()
