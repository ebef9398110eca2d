"""A program to compile configurations for: ours, as if it lacked a library of AMPS's."""

from collections.abc import Mapping

from config_schema.catalogue import LibraryRule
from server.app.wiring.catalogue import ProgramCatalogue

MISSING_LIBRARY = "libamps_http_entitlement.so"


class Program(ProgramCatalogue):
    """The catalogue of the program, except for that library."""

    @property
    def libraries(self) -> Mapping[str, LibraryRule]:
        known = super().libraries
        return {name: rule for name, rule in known.items() if name != MISSING_LIBRARY}
