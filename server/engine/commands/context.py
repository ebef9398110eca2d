"""The options of a client's logon, which its session keeps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionLogonOptions:
    """The options of a client's logon.

    Attributes:
        ack_conflation_s: seconds over which `persisted` acks of publishes are merged.
        pretty: whether binary bodies are sent in a form that people can read.
        correlation_id: the correlation id of the logon.
    """

    ack_conflation_s: float = 1.0
    pretty: bool = False
    correlation_id: str = ""
