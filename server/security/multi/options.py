"""The options of libamps_multi_authentication: parsing and validation.

Problems of files are warnings when a configuration is verified, since the instance may run on
another machine, and errors when an instance starts.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from amperage.client.gssapi import GssError
from config_schema.catalogue import OptionProblem
from config_schema.units import UnitError, parse_count
from server.security.kerberos import KerberosService
from server.security.ldap.directory import (
    DirectoryError,
    LdapDirectorySpec,
    LdapEncryption,
    read_account_password,
)
from server.util.safe_open import MAX_CERTIFICATE_FILE_SIZE, check_regular

if TYPE_CHECKING:
    from config_schema.spec import Options

DEFAULT_PORT: Final = "389"
DEFAULT_PORT_LDAPS: Final = "636"
DEFAULT_VERSION: Final = "2"
DEFAULT_USER_ATTRIBUTES: Final = ("uid", "sAMAccountName")
"""The attributes that have the user's name in most directories, and in Active Directory."""

_HOST: Final = re.compile(r"[^\s/\[\]@]+")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*|\d+(\.\d+)+")
"""The syntax of an attribute (RFC 4512, section 2.5): a name, or a numeric object identifier."""

_OWN_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_MECHANISM: Final = "DefaultAuthenticationMechanism"
_CA_FILE: Final = "LDAP.CAFile"
_PASSWORD_FILE: Final = "LDAP.ServiceAccountPasswordFile"  # noqa: S105 - the name of an option


class MechanismKind(StrEnum):
    """The kind of service that authenticates users."""

    LDAP = "LDAP"
    KERBEROS = "Kerberos"


class OptionsError(ValueError):
    """Options cannot be used. The text names them and gives the reason.

    Attributes:
        option: the option with the problem.
        problem: the problem.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option} {problem}")
        self.option = option
        self.problem = problem


def read_kind(options: Options) -> MechanismKind:
    """Return the kind of service that authenticates users.

    Raises:
        OptionsError: it is ambiguous or missing, or a required option is missing.
    """
    kinds = [
        kind
        for kind in MechanismKind
        if any(option.name.startswith(f"{kind}.") for option in options)
    ]
    if len(kinds) != 1:
        problem = "there are options of both" if kinds else "is missing, and so is Kerberos.SPN"
        raise OptionsError("LDAP.Host", f"{problem}: expected either LDAP or Kerberos")
    kind = kinds[0]
    for needed in (
        ("LDAP.Host",) if kind is MechanismKind.LDAP else ("Kerberos.SPN", "Kerberos.Keytab")
    ):
        if not options.get(needed):
            raise OptionsError(needed, "is missing")
    configured = options.get(_MECHANISM)
    if configured is not None and configured.lower() != kind.lower():
        raise OptionsError(_MECHANISM, f"is {configured}, and the module is configured for {kind}")
    return kind


def read_directory(options: Options) -> LdapDirectorySpec:
    """Return the configuration of the directory, without its TLS context.

    Raises:
        OptionsError: some of them cannot be used.
    """
    encryption = _encryption(options)
    version = _number(options, "LDAP.ProtocolVersion", DEFAULT_VERSION, 2, 3)
    if encryption is LdapEncryption.START_TLS and version == 2:
        raise OptionsError("LDAP.Encryption", "starttls needs LDAP.ProtocolVersion 3")
    default = DEFAULT_PORT_LDAPS if encryption is LdapEncryption.LDAPS else DEFAULT_PORT
    return LdapDirectorySpec(
        host=options.get("LDAP.Host") or "",
        port=_number(options, "LDAP.Port", default, 1, 65_535),
        version=version,
        base=options.get("LDAP.BaseDN") or "",
        account=options.get("LDAP.ServiceAccountDN") or "",
        account_password_file=options.get(_PASSWORD_FILE) or "",
        attributes=options.all("LDAP.UserAttribute") or DEFAULT_USER_ATTRIBUTES,
        encryption=encryption,
        tls=None,
    )


def _encryption(options: Options) -> LdapEncryption:
    text = options.get("LDAP.Encryption") or LdapEncryption.NONE
    try:
        return LdapEncryption(text.lower())
    except ValueError:
        expected = ", ".join(LdapEncryption)
        raise OptionsError("LDAP.Encryption", f"is {text}: expected one of {expected}") from None


def _number(options: Options, name: str, default: str, minimum: int, maximum: int) -> int:
    text = options.get(name) or default
    try:
        value = parse_count(text)
    except UnitError as problem:
        raise OptionsError(name, str(problem)) from None
    if not minimum <= value <= maximum:
        raise OptionsError(name, f"is {text}: expected a number from {minimum} to {maximum}")
    return value


def read_tls(options: Options) -> ssl.SSLContext | None:
    """Return the TLS context that verifies the directory's certificate; None without encryption.

    Raises:
        OptionsError: the file cannot be used.
    """
    if read_directory(options).encryption is LdapEncryption.NONE:
        return None
    authorities = options.get(_CA_FILE)
    try:
        if authorities is not None:
            check_regular(authorities, MAX_CERTIFICATE_FILE_SIZE)
        return ssl.create_default_context(cafile=authorities)
    except ssl.SSLError:
        raise OptionsError(_CA_FILE, f"{authorities}: it has no certificate") from None
    except OSError as problem:
        raise OptionsError(_CA_FILE, f"{authorities}: {problem.strerror}") from None


def open_service(options: Options) -> KerberosService:
    """Return the service that Kerberos tokens must be issued for.

    Raises:
        OptionsError: it has no keys.
    """
    spn = options.get("Kerberos.SPN") or ""
    keytab = options.get("Kerberos.Keytab") or ""
    service = KerberosService(spn, keytab)
    try:
        service.check_keytab()
    except GssError as problem:
        raise OptionsError("Kerberos.Keytab", f"{keytab}: no keys of {spn}: {problem}") from None
    return service


def check(options: Options, _inherited: Options) -> Iterator[OptionProblem]:
    """Yield the problems of a use's options; options of the Modules entry have no effect."""
    try:
        if read_kind(options) is MechanismKind.KERBEROS:
            yield from _check_file(lambda: open_service(options))
            return
        directory = read_directory(options)
    except OptionsError as error:
        yield OptionProblem(error.option, error.problem)
        return
    yield from _invalid_values(directory)
    yield from _check_file(lambda: read_tls(options))
    try:
        read_account_password(directory.account_password_file)
    except DirectoryError as error:
        problem = str(error).removeprefix(_PASSWORD_FILE).lstrip()
        yield OptionProblem(_PASSWORD_FILE, problem, is_warning=True)
    if directory.encryption is LdapEncryption.NONE and directory.host not in _OWN_HOSTS:
        yield OptionProblem(
            "LDAP.Host",
            f"passwords go to {directory.host} unencrypted",
            "give LDAP.Encryption: ldaps, or starttls with LDAP.ProtocolVersion 3",
            is_warning=True,
        )


def _invalid_values(directory: LdapDirectorySpec) -> Iterator[OptionProblem]:
    """Yield values that are invalid for every directory."""
    if not _HOST.fullmatch(directory.host):
        expected = "expected a name or an address alone; LDAP.Port and LDAP.Encryption say the rest"
        yield OptionProblem("LDAP.Host", f"is {directory.host}: {expected}")
    for name in directory.attributes:
        if not _ATTRIBUTE.fullmatch(name):
            yield OptionProblem("LDAP.UserAttribute", f"is {name}: expected a name such as uid")
    for option, text in (
        ("LDAP.BaseDN", directory.base),
        ("LDAP.ServiceAccountDN", directory.account),
    ):
        if text and "=" not in text:
            expected = "expected a distinguished name such as ou=people,dc=example,dc=org"
            yield OptionProblem(option, f"is {text}: {expected}", is_warning=True)


def _check_file(read: Callable[[], object]) -> Iterator[OptionProblem]:
    """Yield the problem of an option's file, as a warning."""
    try:
        read()
    except OptionsError as error:
        yield OptionProblem(error.option, error.problem, is_warning=True)
