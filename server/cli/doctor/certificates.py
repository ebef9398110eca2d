"""Checks of the certificates that an instance presents: readable, and not about to expire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from config_schema.spec import InstanceSpec
from server.cli.doctor.findings import CheckVerdict, Examination
from server.engine.maintenance.certificate_expiry import NOTICE, uses_of_tls
from server.security.certificates import ends_of

AREA: Final = "certificates"


def examine(spec: InstanceSpec, examination: Examination) -> None:
    """Check each certificate of an instance once."""
    now = datetime.now(UTC)
    for path, users in _certificates(spec):
        title = f"{path} of {', '.join(users)}"
        try:
            ends = ends_of(Path(path).read_text("ascii", "replace"))
            why = "has no certificate that can be read"
        except OSError as error:
            ends, why = [], error.strerror or str(error)
        if not ends:
            examination.add_wrong(
                AREA,
                title,
                why,
                "a transport does not open without its certificate",
                "let the user of the server read a file in PEM format",
            )
            continue
        left = min(ends) - now
        verdict = CheckVerdict.LOOK if left < NOTICE else CheckVerdict.OK
        examination.add_finding(
            AREA,
            title,
            f"good until {min(ends):%Y-%m-%d %H:%M} UTC, {left.days} days",
            CheckVerdict.WRONG if left.total_seconds() <= 0 else verdict,
            "clients and other instances refuse it from that moment on",
            "put a new one in the place of the file: it is read again when it changes",
        )


def _certificates(spec: InstanceSpec) -> Iterator[tuple[str, list[str]]]:
    """Yield each certificate file with its users."""
    users: dict[str, list[str]] = {}
    for user, tls in uses_of_tls(spec):
        if tls.certificate is not None:
            users.setdefault(tls.certificate, []).append(user)
    yield from users.items()
