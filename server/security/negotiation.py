"""What answers to credentials that came in an Authorization header.

Source: RFC 4559, section 5 (Negotiate).
"""

from __future__ import annotations

from server.security.authentication import Admission


def proof(challenge: str | None, admission: Admission) -> tuple[tuple[str, str], ...]:
    """The headers by which a server proves who it is to whom it has let in.

    Args:
        challenge: the challenge that the credentials answered to (WWWAuthenticate).
        admission: what has come of them.
    """
    if challenge is None or challenge.lower() != "negotiate" or not admission.token:
        return ()
    return (("WWW-Authenticate", f"{challenge} {admission.token}"),)
