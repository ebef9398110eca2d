"""The extensions of the instance: loaded modules, message types and functions."""

import posixpath
from dataclasses import dataclass

from config_schema.problems import Location
from config_schema.spec.common import Options


@dataclass(frozen=True, slots=True)
class ModuleSpec:
    """A Module of the Modules section: `library` is a path, or a bare name among the known ones."""

    name: str
    library: str
    options: Options
    location: Location

    @property
    def library_name(self) -> str:
        """The name of the intended library of AMPS in tables: without a path, ending with .so."""
        return posixpath.basename(self.library).removesuffix(".so") + ".so"


@dataclass(frozen=True, slots=True)
class MessageTypeSpec:
    """A configured MessageType; `options` hold its own elements besides Name and Module."""

    name: str
    module: str
    version_compliance: int
    options: Options
    location: Location


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A user-defined function; `parameter_count` is None for any number of arguments."""

    name: str
    module: str
    symbol: str
    parameter_count: int | None
    location: Location
