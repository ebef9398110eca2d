"""The response to credentials from an Authorization header.

Source: RFC 4559, section 5 (Negotiate).
"""

from __future__ import annotations

from server.security.authentication import Admission


def proof(challenge: str | None, admission: Admission) -> tuple[tuple[str, str], ...]:
    """Return the headers that prove the server's identity to a client that it has admitted.

    Args:
        challenge: the challenge that the credentials answered (WWWAuthenticate).
        admission: the decision on the credentials.
    """
    if challenge is None or challenge.lower() != "negotiate" or not admission.token:
        return ()
    return (("WWW-Authenticate", f"{challenge} {admission.token}"),)
