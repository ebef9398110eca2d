"""What the process that stands by has read before it forks: see `tests.support.forked`.

It takes about a second of a processor. Nothing else imports this module, so that the processes of
tests do not spend it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from config_schema import schema
from server.admin.console.assets import read_assets
from server.app import launch
from server.app.configuration import read_configuration
from server.cli import amp_server
from server.message_types.registry import DECLARED, MessageTypes
from server.security.oauth import bearer
from server.sql import connection, local_client, services
from server.sql.tables import statistics_table

SAMPLE: Final = Path(__file__).parents[2] / "sample_configs" / "first_message.xml"

PRELOADED: Final = (
    amp_server,
    launch,
    bearer,
    (connection, local_client, services, statistics_table),
    read_configuration(str(SAMPLE), {}),
    [(schema.children(path), schema.synonyms(path)) for path in schema.elements()],
    tuple(map(MessageTypes().get, DECLARED)),
    read_assets(),
    "localhost".encode("idna"),
)
"""What takes long and is the same for all: modules of a server, also those that it imports if its
configuration has SQL or OAuth, how configurations are validated, message types, the files of the
console, and what Python reads when a host is looked up."""
