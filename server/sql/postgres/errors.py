"""Errors as PostgreSQL reports them: a SQLSTATE, a message, and where there is more to say, more.

Source: PostgreSQL 16, Appendix A (error codes) and 55.8 (error and notice message fields).
"""

from __future__ import annotations

from typing import Final, NamedTuple

ERROR: Final = "ERROR"
FATAL: Final = "FATAL"


class Diagnostic(NamedTuple):
    """The content of an ErrorResponse or a NoticeResponse.

    Attributes:
        sqlstate: five characters.
        message: one line for people.
        severity: ERROR ends a statement, FATAL the connection.
        detail: more about the problem; empty for none.
        hint: advice for the user; empty for none.
        position: where in the statement, in characters from 1 on; 0 for nowhere.
        routine: the function of PostgreSQL that has this error, for drivers that act on it; empty
            for none.
    """

    sqlstate: str
    message: str
    severity: str = ERROR
    detail: str = ""
    hint: str = ""
    position: int = 0
    routine: str = ""


class FormatError(ValueError):
    """A value that cannot be decoded from, or encoded in, the format that the client asked for.

    Attributes:
        sqlstate: the code for the client.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
