"""Certificates of all kinds for tests of TLS, most of which should not be accepted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)

_PURPOSES = {
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
}


class Authority:
    """A certificate authority.

    Args:
        directory: where its files are.
        name: its name.

    Attributes:
        file: its certificate.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        made = self._builder(self._name, self._key.public_key(), timedelta(0), 365 * DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        name: str,
        *,
        begins: timedelta = timedelta(0),
        lasts: timedelta = 365 * DAY,
        purpose: str = "client",
        alternatives: tuple[x509.GeneralName, ...] = (),
        file: str = "",
    ) -> tuple[Path, Path]:
        """Make a certificate.

        Args:
            name: the common name; empty for none.
            begins: from when on it is good, counted from now.
            lasts: for how long from then.
            purpose: what it is for, `client` or `server`.
            alternatives: the alternative names.
            file: how the files are called; like the name if empty.

        Returns:
            The files of the certificate and of its key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name) if name else x509.Name([])
        made = self._builder(subject, key.public_key(), begins, lasts)
        made = made.add_extension(x509.ExtendedKeyUsage([_PURPOSES[purpose]]), critical=False)
        if alternatives:
            made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=not name)
        stem = f"{self.file.stem}-{file or name}"
        certificate, key_file = self._directory / f"{stem}.crt", self._directory / f"{stem}.key"
        certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, key_file

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        begins: timedelta,
        lasts: timedelta,
    ) -> x509.CertificateBuilder:
        begin = datetime.now(UTC) - timedelta(minutes=1) + begins
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + lasts)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
