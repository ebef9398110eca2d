"""The examination of an instance of which a configuration, an address or both are known.

Each of them is used to find the other: the configuration has the address of the admin interface,
and an instance on this machine reports its configuration file and its working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config_schema.spec import InstanceSpec, TopicSpec
from config_schema.version import AMPS_VERSION
from server.admin.diagnosis.directories import InstanceDirectory, instance_directories
from server.admin.diagnosis.file_checks import CERTIFICATES, certificate_findings
from server.cli.doctor import (
    clock,
    configuration,
    data_files,
    disks,
    latency,
    live_instance,
    logs,
    machine,
    minidumps,
    versions,
)
from server.cli.doctor.admin_interface import (
    TIMEOUT_S,
    AdminClient,
    AdminLogin,
    AdminRequestError,
)
from server.cli.doctor.configuration import DoctorConfiguration
from server.cli.doctor.findings import Examination
from server.cli.doctor.live_instance import InstanceIdentity
from server.cli.doctor.machine import find_lock_holder
from server.cli.doctor.redaction import SecretRedactor
from server.cli.service.installer import working_directory
from server.engine.maintenance.certificate_expiry import certificate_users
from server.log.targets.file import FORMATS

_PROCESS: Final = "process"
_WILDCARD_ADDRESSES: Final = ("0.0.0.0", "::")  # noqa: S104 - no client can connect to these
_LOCALHOST: Final = "localhost"


@dataclass(frozen=True, slots=True)
class ExaminationRequest:
    """The request for an examination.

    Attributes:
        config: the configuration file; None to request it from the instance.
        url: address of the admin interface; None to take it from the configuration.
        login: the credentials for it.
        defines: variables of the configuration.
        directory: base of relative paths; None for the directory that the instance or its service
            reports, or else the current one.
        with_minidump: request a new minidump.
        latency_s: for how many seconds to measure delays of the engine; 0 for not at all.
    """

    config: str | None
    url: str | None
    login: AdminLogin
    defines: Mapping[str, str]
    directory: Path | None
    with_minidump: bool
    latency_s: float


def examine(request: ExaminationRequest, secrets: SecretRedactor) -> Examination:
    """Run all checks of an instance; this process changes to the instance's directory."""
    examination_run = _ExaminationRun(request, secrets)
    examination = examination_run.examination
    examination.run_step(configuration.AREA, examination_run.read_configuration)
    examination.run_step(live_instance.AREA, examination_run.find_instance)
    if examination_run.is_local:
        examination.run_step(configuration.AREA, examination_run.change_directory)
        examination.run_step(configuration.AREA, examination_run.verify)
        examination.run_step(_PROCESS, examination_run.find_process)
    examination.run_step(live_instance.AREA, examination_run.query_instance)
    examination.run_step(latency.AREA, examination_run.measure_latency)
    if examination_run.is_local:
        examination.run_step(machine.AREA, examination_run.check_machine)
        examination_run.check_files()
    else:
        examination.add_ok(
            machine.AREA, "this machine", "not looked at, as the instance is on another one"
        )
    examination.run_step(clock.AREA, examination_run.check_clock)
    examination.run_step(
        versions.AREA, lambda: versions.examine(examination_run.version, examination)
    )
    return examination


class _ExaminationRun:
    """The state of one examination."""

    def __init__(self, request: ExaminationRequest, secrets: SecretRedactor) -> None:
        self.examination: Final = Examination()
        self._request: Final = request
        self._secrets: Final = secrets
        self._configuration: DoctorConfiguration | None = None
        self._admin: AdminClient | None = None
        self._identity: InstanceIdentity | None = None
        self._pid: int | None = None
        self._minidump_path: Path | None = None
        self._directories: list[InstanceDirectory] = []
        self._is_in_directory = False

    @property
    def is_local(self) -> bool:
        """True if the instance is on this machine, as far as that is known."""
        if self._admin is None or self._request.url is None:
            return True
        if self._identity is None and self._request.config is not None:
            return True  # nothing but this machine can be examined
        return self._admin.is_local

    @property
    def version(self) -> str:
        """The version of the running server; empty if unknown."""
        identity = self.examination.facts.get(logs.VERSION)
        return identity if isinstance(identity, str) and self._identity is not None else ""

    @property
    def _spec(self) -> InstanceSpec | None:
        """The instance, as far as its configuration can be understood."""
        return None if self._configuration is None else self._configuration.partial_spec

    def read_configuration(self) -> None:
        """Read the configuration that the caller named."""
        if self._request.config is not None:
            self._read_file(self._request.config)

    def find_instance(self) -> None:
        """Request the identity of the instance, and read its configuration if none was named."""
        try:
            self._admin = self._make_admin_client()
        except AdminRequestError as error:
            self.examination.add_wrong(
                live_instance.AREA,
                "address",
                str(error),
                "no instance can be asked",
                "give another --url",
            )
            return
        if self._admin is None:
            return
        self._identity = identity = live_instance.identify(self._admin, self.examination)
        if identity is None:
            return
        self._pid = identity.pid if self.is_local and _is_local_process(identity) else None
        self.examination.facts["instance"] = {
            "name": identity.name,
            "pid": identity.pid,
            "directory": identity.directory,
            "configuration": identity.config,
            "amps_version": identity.amps_version,
            "url": self._admin.url,
        }
        if self._configuration is None and self.is_local:
            self._read_file(os.path.join(identity.directory, identity.config))

    def _read_file(self, path: str) -> None:
        self._configuration = configuration.read(path, self._request.defines, self._secrets)

    def _make_admin_client(self) -> AdminClient | None:
        request, spec = self._request, self._spec
        if request.url is not None:
            return AdminClient(request.url, request.login)
        if spec is None:
            return None
        if spec.admin is None or spec.admin.inet_addr is None:
            self.examination.add_attention(
                live_instance.AREA,
                "address",
                "none",
                "the configuration has no Admin/InetAddr, so that nothing can be asked of the"
                " instance while it runs",
                "add an Admin section, on an address that only administrators reach",
            )
            return None
        scheme = "http" if spec.admin.tls is None else "https"
        address = spec.admin.inet_addr
        host = (
            _LOCALHOST
            if address.host is None or address.host in _WILDCARD_ADDRESSES
            else address.host
        )
        named = f"[{host}]" if ":" in host else host
        return AdminClient(f"{scheme}://{named}:{address.port}", request.login)

    def change_directory(self) -> None:
        """Change to the directory at which the instance's relative paths begin."""
        directory = self._request.directory
        if directory is None and self._identity is not None:
            directory = Path(self._identity.directory)
        if directory is None and self._configuration is not None:
            directory = working_directory(Path(self._configuration.path))
        if directory is not None:
            os.chdir(directory)
        self._is_in_directory = True

    def verify(self) -> None:
        """Verify the configuration."""
        if self._configuration is not None:
            configuration.examine(self._configuration, self.examination)
        if self._spec is not None and self._is_in_directory:
            self._directories = instance_directories(self._spec)

    def find_process(self) -> None:
        """Find the process; if the instance does not report it, by the locks on its files."""
        spec = self._spec
        if self._pid is None and spec is not None:
            files = [Path(topic.file_name) for topic in _file_topics(spec) if topic.file_name]
            self._pid = find_lock_holder(
                [*(directory.path for directory in self._directories), *files]
            )
        if self._pid is not None:
            self.examination.add_ok(_PROCESS, "runs", f"process {self._pid}")
            if self._identity is None and self._request.with_minidump:
                self._advise_signal(self._pid)
        elif spec is not None and self._identity is None:
            self.examination.add_attention(
                _PROCESS,
                "runs",
                "no process is known to use the instance's files",
                "the instance does not run, or runs as a user whose locks cannot be seen",
                "start it, or run amps-doctor where it runs",
            )

    def _advise_signal(self, pid: int) -> None:
        self.examination.add_attention(
            minidumps.AREA,
            "a minidump",
            "none was written",
            "the admin interface cannot be asked for one",
            f"kill -QUIT {pid} has the server write one",
        )

    def query_instance(self) -> None:
        """Collect the instance's state from its admin interface."""
        if self._admin is None or self._identity is None:
            return
        if self._request.with_minidump:
            self._minidump_path = live_instance.take_minidump(self._admin, self.examination)
        spec = self._spec
        has_files = spec is not None and any(target.protocol in FORMATS for target in spec.logging)
        file = None if self._configuration is None else self._configuration.redacted_text
        live_instance.examine(
            self._admin,
            file,
            self.examination,
            with_log=not has_files,
            with_files=not self.is_local,
        )
        if self._identity.amps_version != AMPS_VERSION:
            self.examination.add_attention(
                versions.AREA,
                "the server that runs",
                self._identity.amps_version,
                f"it implements another version of AMPS than this command, {AMPS_VERSION}",
                "use the commands that came with it",
            )

    def measure_latency(self) -> None:
        """Measure the delays of the engine, if that is requested."""
        seconds, admin = self._request.latency_s, self._admin
        if seconds and admin is not None and self._identity is not None:
            patient_admin = AdminClient(admin.url, self._request.login, seconds + TIMEOUT_S)
            latency.examine(patient_admin, seconds, self.examination)
        elif seconds:
            self.examination.add_attention(
                latency.AREA,
                "delays of the engine",
                "not measured",
                "the instance does not answer, or has no admin interface",
                "give the address of its admin interface by --url",
            )

    def check_machine(self) -> None:
        """Check the machine."""
        machine.examine(machine.HostMachine(pid=self._pid), self.examination)

    def check_files(self) -> None:
        """Check disks, files, certificates, logs and minidumps."""
        spec, examination, minidump_path = self._spec, self.examination, self._minidump_path
        if minidump_path is not None:
            examination.run_step(
                minidumps.AREA, lambda: minidumps.attach(minidump_path, examination)
            )
        if spec is None or not self._is_in_directory:
            return
        examination.run_step(disks.AREA, lambda: disks.examine(self._directories, examination))
        examination.run_step(
            data_files.AREA, lambda: data_files.examine(spec, self._directories, examination)
        )
        examination.run_step(
            CERTIFICATES,
            lambda: examination.findings.extend(certificate_findings(certificate_users(spec))),
        )
        examination.run_step(logs.AREA, lambda: logs.examine(spec, examination))
        examination.run_step(
            minidumps.AREA, lambda: minidumps.examine(spec, minidump_path, examination)
        )

    def check_clock(self) -> None:
        """Check the clock, and compare it with the server's."""
        identity = self._identity
        known_identity = identity or live_instance.InstanceIdentity()
        clock.examine(known_identity.date, known_identity.request_times, self.examination)


def _file_topics(spec: InstanceSpec) -> list[TopicSpec]:
    return [topic for topic in spec.sow if isinstance(topic, TopicSpec)]


def _is_local_process(identity: InstanceIdentity) -> bool:
    """Return True if the process is on this machine: in a container, it has another id there."""
    process = Path(f"/proc/{identity.pid}")
    try:
        return os.readlink(process / "cwd") == identity.directory
    except PermissionError:
        return process.is_dir()  # the process of another user
    except OSError:
        return False
