"""Listeners that check no credentials.

The default and the implicit module accept every logon, so that naming one of them
authenticates no client. Source: AMPS User Guide, Authentication.
"""

from typing import Final

from config_schema.spec.common import InetAddr, ModuleUse, TlsSpec

ACCEPTING_MODULES: Final = frozenset(
    ("amps-default-authentication-module", "amps-implicit-authentication-module")
)
"""Authentication modules that check no credentials."""


def accepts_any_client(*uses: ModuleUse | None) -> bool:
    """Return whether no credentials are checked.

    Args:
        uses: the Authentication elements that may apply; the first one that is there does.
    """
    use = next((candidate for candidate in uses if candidate is not None), None)
    return use is None or use.module in ACCEPTING_MODULES


def is_exposed(address: InetAddr | None, tls: TlsSpec | None, *uses: ModuleUse | None) -> bool:
    """Return whether every host in the network can use the listener of an address.

    Args:
        address: where it listens; None for a unix socket.
        tls: its TLS settings; certificates of clients count as credentials.
        uses: see `accepts_any_client`.
    """
    if address is None or address.host not in (None, "0.0.0.0", "::"):  # noqa: S104 - compared
        return False
    return not (tls is not None and tls.verify_client) and accepts_any_client(*uses)
