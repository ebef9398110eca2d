"""Servers on which each user has a permission document, that tests write as a dict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.server import RunningServer, running_server

LIBRARY: Final = """
import json
from pathlib import Path

class Documents:
    async def permissions(self, user):
        return json.loads(Path("documents.json").read_text())[user]

def create_entitlement(name, options):
    return Documents()
"""

MODULE: Final = "<Module><Name>documents</Name><Library>./documents.py</Library></Module>"

SECURITY: Final = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
<Entitlement><Module>documents</Module></Entitlement>
"""
"""Everybody is who they say they are, and may do what their document says."""


def write_documents(directory: Path, documents: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what users may do; it counts for whoever is asked for from then on.

    Args:
        directory: where the server runs.
        documents: by the names of users; whoever has none may do nothing.
    """
    (directory / "documents.py").write_text(LIBRARY)
    (directory / "documents.json").write_text(json.dumps(documents))


@contextmanager
def entitled_server(
    directory: Path,
    documents: Mapping[str, Mapping[str, Any]],
    *,
    elements: str = "",
    modules: str = "",
    **options: Any,
) -> Iterator[RunningServer]:
    """A server on which each user has a permission document.

    Args:
        directory: where it runs.
        documents: see `write_documents`.
        elements: further elements of the configuration.
        modules: further modules.
        options: of `running_server`.
    """
    write_documents(directory, documents)
    security = f"<Modules>{MODULE}{modules}</Modules>{SECURITY}"
    with running_server(directory, elements=security + elements, **options) as server:
        yield server
