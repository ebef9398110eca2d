"""Logs on to other instances with Kerberos tickets.

Source: AMPS User Guide, Multimethod Authenticator.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Final

from amperage.client.gssapi import GssError, KeytabIdentity, initiate, owner
from server.security.kerberos import check_keytab
from server.security.outgoing.source import CredentialSourceError

_KERBEROS_SECONDS: Final = 10.0
"""Timeout of a request for a ticket."""


class KerberosCredentials:
    """Makes a token from a keytab, for each connection.

    The Kerberos library blocks on a slow KDC and cannot be interrupted. Meanwhile, further requests
    for credentials fail immediately, so that at most one thread waits.

    Args:
        spn: the service to log on to.
        keytab: the file with the keys of the user to log on as.
    """

    def __init__(self, spn: str, keytab: str) -> None:
        self._spn: Final = spn
        self._keytab: Final = keytab
        self._identity = KeytabIdentity(keytab)
        self._lock = threading.Lock()

    async def credentials(self) -> tuple[str, str]:
        """See `CredentialSource`."""
        if not self._lock.acquire(blocking=False):
            raise CredentialSourceError(f"Kerberos: still waiting for a ticket for {self._spn}")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[str, str]] = loop.create_future()

        def set_outcome(result: tuple[str, str] | GssError) -> None:
            if outcome.done():
                return
            if isinstance(result, GssError):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

        def work() -> None:
            try:
                result: tuple[str, str] | GssError = self._make_token()
            except GssError as problem:
                result = problem
            self._lock.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(set_outcome, result)

        # A daemon thread, so that process exit does not wait for the KDC.
        threading.Thread(target=work, name="kerberos", daemon=True).start()
        try:
            async with asyncio.timeout(_KERBEROS_SECONDS):
                return await outcome
        except TimeoutError:
            raise CredentialSourceError(
                f"Kerberos: no ticket for {self._spn} within {_KERBEROS_SECONDS:.0f} seconds"
            ) from None
        except GssError as problem:
            raise CredentialSourceError(
                f"Kerberos: no ticket for {self._spn} with {self._keytab}: {problem}"
            ) from None

    def _make_token(self) -> tuple[str, str]:
        """Return the owner of the token, and the token.

        Raises:
            GssError: there is no ticket.
        """
        check_keytab(self._keytab)
        credential = self._identity.acquire()
        token = initiate(self._spn, credential).process_token(b"")
        return owner(credential), base64.b64encode(token).decode()
