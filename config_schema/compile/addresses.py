"""Addresses with two listeners, and addresses that are open to the whole network."""

from collections.abc import Sequence
from dataclasses import dataclass

from config_schema.compile.reader import CompileReport
from config_schema.problems import Location
from config_schema.spec import AdminSpec, InetAddr, ModuleUse, TransportSpec
from config_schema.spec.exposure import is_exposed


@dataclass(frozen=True, slots=True)
class _Claim:
    """One listener: its name, the address it binds, and whether it is open from the start."""

    owner: str
    element: str
    address: InetAddr | str
    from_start: bool
    location: Location


def check_addresses(
    transports: Sequence[TransportSpec], admin: AdminSpec | None, report: CompileReport
) -> None:
    """Report every pair of listeners that cannot both listen.

    Where one of the two starts disabled, an action may mean to swap them: that is only a warning.
    """
    claims = [claim for transport in transports if (claim := _transport_claim(transport))]
    if admin is not None and admin.inet_addr is not None:
        address = admin.inet_addr
        claims.append(_Claim("Admin", "Admin/InetAddr", address, True, address.location))
    for index, claim in enumerate(claims):
        for earlier in claims[:index]:
            if _overlap(claim.address, earlier.address):
                _report_conflict(claim, earlier, report)
                break


def check_exposure(
    transports: Sequence[TransportSpec],
    admin: AdminSpec | None,
    authentication: ModuleUse | None,
    report: CompileReport,
) -> None:
    """Warn, once, about listeners on all addresses for which no credentials are checked.

    Args:
        transports: the transports.
        admin: the admin interface, if there is one.
        authentication: the instance's authentication, for transports without their own.
        report: takes the warning.
    """
    claims = [
        claim
        for transport in transports
        if transport.initial_state_enabled
        and is_exposed(transport.inet_addr, transport.tls, transport.authentication, authentication)
        and (claim := _transport_claim(transport)) is not None
    ]
    if admin is not None and admin.inet_addr is not None:
        address = admin.inet_addr
        if is_exposed(address, admin.tls, admin.authentication, authentication):
            claims.append(_Claim("Admin", "Admin/InetAddr", address, True, address.location))
    if not claims:
        return
    owners = [claim.owner for claim in claims]
    listed = " and ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
    verb, whose = ("listens", "its") if len(owners) == 1 else ("listen", "their")
    report.warning(
        claims[0],
        claims[0].element,
        f"{listed} {verb} on all addresses of this machine, and no credentials are checked: "
        "everyone who reaches one of them can use the instance",
        f"put a host before {whose} port, as in localhost:{_port(claims[0])}, "
        "or configure Authentication",
    )


def _transport_claim(spec: TransportSpec) -> _Claim | None:
    owner = f"the transport '{spec.name}'"
    if spec.file_name is not None:
        return _Claim(
            owner,
            "Transport/FileName",
            spec.file_name,
            spec.initial_state_enabled,
            spec.location,
        )
    if spec.inet_addr is None:
        return None
    return _Claim(
        owner,
        "Transport/InetAddr",
        spec.inet_addr,
        spec.initial_state_enabled,
        spec.inet_addr.location,
    )


def _port(claim: _Claim) -> int:
    return claim.address.port if isinstance(claim.address, InetAddr) else 0


def _overlap(address: InetAddr | str, other_address: InetAddr | str) -> bool:
    if isinstance(address, str) or isinstance(other_address, str):
        return address == other_address
    if address.port != other_address.port or address.port == 0:
        return False
    if (
        "any" not in (address.family, other_address.family)
        and address.family != other_address.family
    ):
        return False
    hosts = {_bound_to(address), _bound_to(other_address)}
    return len(hosts) == 1 or None in hosts


def _bound_to(address: InetAddr) -> str | None:
    """Return the host that is bound, with None for every address of its family."""
    if address.host in (None, "0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        return None
    host = (address.host or "").lower()
    return "127.0.0.1" if host == "localhost" else host


def _report_conflict(claim: _Claim, earlier: _Claim, report: CompileReport) -> None:
    same = str(claim.address) == str(earlier.address)
    message = f"{claim.address} is already used by {earlier.owner} at {earlier.location}"
    if not same:
        message += f", which listens on {earlier.address}"
    if claim.from_start and earlier.from_start:
        report.error(claim, claim.element, message, "give each its own")
    else:
        report.warning(claim, claim.element, f"{message}; only one can be enabled at a time")
