"""The secrets and certificates that connections are opened with.

A password in a file or in the environment is read for each connection, on the machine that opens
it, so that a renewed password takes effect. Executors need not have that file or variable: they get
the value read at planning, which is sent to them with the work. A plan contains none of it, because
Spark shows the options themselves; which of these it redacts is up to Spark.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace

from amperage.client import (
    Authenticator,
    CredentialsError,
    SecretAuthenticator,
    SecretFile,
    SecretSource,
    SecretVariable,
    make_ssl_context,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLogin:
    """The credentials for connections, besides those in a URI.

    Attributes:
        password_file: file that holds the password, or a token.
        password_env: environment variable that holds it.
        known_password: the password that was read at planning.
        ca_file: the authorities to trust; None for the system's.
        certificate_file: the certificate for servers that ask for one.
        key_file: its key, if that is in another file.
    """

    password_file: str | None = None
    password_env: str | None = None
    known_password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def with_current_password(self) -> ConnectionLogin:
        """Return a copy with the current password, for machines where it cannot be read.

        Raises:
            CredentialsError: it cannot be read here.
        """
        source = self._secret_source()
        return self if source is None else replace(self, known_password=source.read(None))

    def authenticator(self) -> Authenticator | None:
        """Return the authenticator for the password; None if the URI has it."""
        return None if self._secret_source() is None else SecretAuthenticator(self)

    def read(self, user: str | None) -> str:
        """Read the password; see `amperage.SecretSource`."""
        source = self._secret_source()
        try:
            if source is not None:
                return source.read(user)
        except CredentialsError:
            if self.known_password is None:
                raise
        return self.known_password or ""

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for the default.

        Raises:
            TlsFileError: a file cannot be used.
        """
        if self.ca_file is None and self.certificate_file is None:
            return None
        return make_ssl_context(self.ca_file, self.certificate_file, self.key_file)

    def _secret_source(self) -> SecretSource | None:
        if self.password_file is not None:
            return SecretFile(self.password_file)
        if self.password_env is not None:
            return SecretVariable(self.password_env)
        return None
