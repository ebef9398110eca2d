"""Checks of a configuration that a start would make, made without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.app.wiring.expected_files import check_expected_files
from server.app.wiring.foreign_files import warn_of_foreign_files
from server.app.wiring.open_telemetry import check_open_telemetry_libraries
from server.app.wiring.provision import check_provisions
from server.app.wiring.provision_security import check_users_files
from server.app.wiring.renamed_instance import warn_of_journals_of_others
from server.app.wiring.sql_transports import check_sql_libraries

if TYPE_CHECKING:
    from config_schema.document import ConfigNode
    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec


def check_start(spec: InstanceSpec, root: ConfigNode, problems: Problems) -> None:
    """Check the files, definitions and directories that the configuration needs.

    Args:
        spec: the instance.
        root: its configuration in canonical names, without errors.
        problems: gets the problems found.
    """
    check_provisions(spec, problems)
    check_users_files(spec, problems)
    check_sql_libraries(spec, problems)
    check_open_telemetry_libraries(spec, problems)
    check_expected_files(root, problems)
    warn_of_foreign_files(spec, problems)
    warn_of_journals_of_others(spec, problems)
