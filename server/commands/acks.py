"""Acknowledgements: which ones a command asked for, and how they are answered.

Source: AMPS Command Reference, ack: Status from Server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def wants(header: Header, ack: str) -> bool:
    """Whether a command asks for an ack of some type."""
    return header.acks is not None and ack in _names(header.acks)


def acknowledge(session: Session, header: Header, ack: str, **keys: str | int | None) -> None:
    """Send a successful ack, if the command asked for one of that type.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        ack: the type of ack.
        keys: further attributes of the ack's header.
    """
    if wants(header, ack):
        _send(session, header, ack, "success", keys)


def fail(session: Session, header: Header, ack: str, reason: str, detail: str) -> None:
    """Send a failure ack, if the command asked for one of that type.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        ack: the type of ack.
        reason: the phrase that clients know.
        detail: what is wrong and what was expected.
    """
    if wants(header, ack):
        _send(session, header, ack, "failure", {"reason": reason, "detail": detail})


def _send(
    session: Session, header: Header, ack: str, status: str, keys: dict[str, str | int | None]
) -> None:
    session.send(
        Header(
            command="ack",
            command_id=header.command_id,
            acks=ack,
            status=status,
            **keys,  # type: ignore[arg-type]  # callers pass attributes of Header
        )
    )


def _names(acks: str) -> list[str]:
    return [name.strip() for name in acks.split(",")]
