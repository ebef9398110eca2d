"""What connections are opened with: secrets and certificates.

A password in a file or in the environment is read where a connection is made, for each of them, so
that one that has been renewed meanwhile counts. Executors need not have that file or variable: they
are given what was read where the work was planned, which travels to them with it. None of it is in
a plan, for Spark shows the options themselves: how it hides some of these is Spark's to say.
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
class Login:
    """What connections are opened with, besides what a URI says.

    Attributes:
        password_file: file that holds the password, or a token.
        password_env: environment variable that holds it.
        known: what one of these had where the work was planned.
        ca_file: whom to trust; None for the system's authorities.
        certificate_file: what to show to servers that ask for a certificate.
        key_file: its key, if that is elsewhere.
    """

    password_file: str | None = None
    password_env: str | None = None
    known: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def planned(self) -> Login:
        """The same with the password as it is now, for where it is not to be had.

        Raises:
            CredentialsError: it is not to be had here.
        """
        source = self._source()
        return self if source is None else replace(self, known=source.read(None))

    def authenticator(self) -> Authenticator | None:
        """What shows the password; None if that is the URI's."""
        return None if self._source() is None else SecretAuthenticator(self)

    def read(self, user: str | None) -> str:
        """Read the password; see `amperage.SecretSource`."""
        source = self._source()
        try:
            if source is not None:
                return source.read(user)
        except CredentialsError:
            if self.known is None:
                raise
        return self.known or ""

    def ssl_context(self) -> ssl.SSLContext | None:
        """What secures connections; None for the default.

        Raises:
            TlsFileError: a file cannot be used.
        """
        if self.ca_file is None and self.certificate_file is None:
            return None
        return make_ssl_context(self.ca_file, self.certificate_file, self.key_file)

    def _source(self) -> SecretSource | None:
        if self.password_file is not None:
            return SecretFile(self.password_file)
        if self.password_env is not None:
            return SecretVariable(self.password_env)
        return None
