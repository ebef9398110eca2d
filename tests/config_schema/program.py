"""A program to compile configurations for: ours, but with two features that are not built yet.

What really is not built changes with every version; what the tests expect must not.
"""

from collections.abc import Mapping

from server.assembly.catalogue import ProgramCatalogue


class Program(ProgramCatalogue):
    """The catalogue of the program, except for what is not built."""

    @property
    def unbuilt(self) -> Mapping[str, str]:
        return {
            "Transports/Transport/TransportFilter": "transport filters",
            "Actions/Action/Do/Module=amps-action-do-minidump": "minidumps",
        }
