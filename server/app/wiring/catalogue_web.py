"""The TLS options shared by all modules that call web services.

They are read in `server.security.http_client_options`.
"""

from __future__ import annotations

from config_schema.catalogue import OptionRule, ValueKind


def https_options(service: str) -> tuple[OptionRule, ...]:
    """Return the options.

    Args:
        service: the noun for the service in help texts.
    """
    return (
        OptionRule(
            "Certificate",
            ValueKind.TEXT,
            f"file with the certificate that is shown to the {service}",
        ),
        OptionRule("Key", ValueKind.TEXT, "file with its key"),
        OptionRule(
            "CAKey",
            ValueKind.TEXT,
            f"file with the authorities that the {service} is checked with; the system's if left"
            " out",
        ),
        OptionRule(
            "AllowUnverifiedPeer",
            ValueKind.BOOLEAN,
            f"believe the {service} without checking its certificate",
            default="false",
        ),
        OptionRule(
            "AllowSelfSigned",
            ValueKind.BOOLEAN,
            "accept a certificate that is signed with its own key",
            default="false",
        ),
    )
