"""The targets of the event log."""

from dataclasses import dataclass
from typing import Literal, Self

from config_schema.problems import Location

LogProtocol = Literal["stdout", "stderr", "file", "gzip", "syslog"]


@dataclass(frozen=True, slots=True)
class LogTargetSpec:
    """One logging Target: the entries of `level`, `levels` or `include_errors`, minus excludes.

    `level` is the lowest level to write (None: no level), `levels` are written as well. The error
    lists hold message ids or regular expressions over them. `rotation_threshold` is bytes. `ident`,
    `options` and `facility` belong to syslog, `file_name` to file and gzip.
    Source: AMPS User Guide, Configuring Logging.
    """

    protocol: LogProtocol
    level: str | None
    levels: tuple[str, ...]
    include_errors: tuple[str, ...]
    exclude_errors: tuple[str, ...]
    file_name: str | None
    rotation_threshold: int | None
    ident: str | None
    options: tuple[str, ...]
    facility: str | None
    location: Location

    @classmethod
    def plain(cls, protocol: LogProtocol, level: str) -> Self:
        """Return a target that is not configured: it logs all from a level on.

        Args:
            protocol: where to.
            level: the lowest level.
        """
        return cls(
            protocol=protocol,
            level=level,
            levels=(),
            include_errors=(),
            exclude_errors=(),
            file_name=None,
            rotation_threshold=None,
            ident=None,
            options=(),
            facility=None,
            location=Location("", 0),
        )
