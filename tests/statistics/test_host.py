"""The host's and the process's figures, read from a /proc that the test writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from server.statistics.host import FreeSpaceTrend, host_sources, safe_id
from server.statistics.host_resources import (
    HOST,
    HOST_CPUS,
    HOST_DISKS,
    HOST_MEMORY,
    HOST_NETWORK,
)
from server.statistics.process import process_sources
from server.statistics.resources import CPU, MEMORY
from server.statistics.sample import StatisticsSource
from server.statistics.schema import Resource, StatisticValue

Figures = dict[str, dict[str, StatisticValue]]


class Host:
    """A host as sources see it.

    Attributes:
        now: the time, in seconds.
    """

    def __init__(self, directory: Path) -> None:
        self.now = 100.0
        self._directory = directory

        def clock() -> float:
            return self.now

        self._sources: dict[str, StatisticsSource] = {
            source.resource.path: source
            for source in [*host_sources(directory, clock), *process_sources(directory, clock)]
        }

    def write(self, name: str, text: str) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, resource: Resource) -> Figures:
        names = [field.name for field in (*resource.static_fields, *resource.source_fields)]
        entries = self._sources[resource.path].entries()
        return {
            entry.id: dict(zip(names, entry.static_values + entry.dynamic_values, strict=True))
            for entry in entries
        }


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_processors_show_what_they_did_between_two_readings(host: Host) -> None:
    host.write("stat", "cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\nintr 5\n")
    first = host.read(HOST_CPUS)
    assert set(first) == {"all", "cpu0"}
    assert first["all"] == {  # since the host was started
        "idle_percent": 80.0,
        "iowait_percent": 0.0,
        "system_percent": 10.0,
        "user_percent": 10.0,
    }
    host.write("stat", "cpu  30 10 15 120 20 1 2 2 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\n")
    assert host.read(HOST_CPUS) == {
        "all": {
            "idle_percent": 40.0,
            "iowait_percent": 20.0,
            "system_percent": 10.0,
            "user_percent": 30.0,
        },
        "cpu0": dict.fromkeys(first["cpu0"], 0.0),
    }


def test_a_processor_goes_away_and_comes_back(host: Host) -> None:
    both = "cpu  1 0 1 8 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0\ncpu1 1 0 1 8 0 0 0 0\n"
    host.write("stat", both)
    host.read(HOST_CPUS)
    host.write("stat", "cpu  2 0 1 8 0 0 0 0\ncpu0 2 0 1 8 0 0 0 0\n")
    assert set(host.read(HOST_CPUS)) == {"all", "cpu0"}
    host.write("stat", both)
    assert host.read(HOST_CPUS)["cpu1"]["idle_percent"] == 80.0


def test_old_kernels_have_fewer_columns(host: Host) -> None:
    host.write("stat", "cpu  0 0 0 0\n")
    host.read(HOST_CPUS)
    host.write("stat", "cpu  1 0 1 2\n")
    assert host.read(HOST_CPUS)["all"]["idle_percent"] == 50.0


MEMINFO = """MemTotal:       1000 kB
MemFree:         400 kB
MemAvailable:    700 kB
Buffers:          10 kB
Cached:          200 kB
AnonPages:        90 kB
SwapTotal:        50 kB
SwapFree:         40 kB
HugePages_Total:       0
"""


def test_memory_is_in_bytes(host: Host) -> None:
    host.write("meminfo", MEMINFO)
    assert host.read(HOST_MEMORY)[""] == {
        "swap_total": 50 * 1024,
        "total": 1000 * 1024,
        "anonymous": 90 * 1024,
        "available": 700 * 1024,
        "buffers": 10 * 1024,
        "cached": 200 * 1024,
        "free": 400 * 1024,
        "in_use": 600 * 1024,
        "swap_free": 40 * 1024,
    }


def test_what_is_available_is_added_up_where_the_kernel_does_not_say(host: Host) -> None:
    host.write("meminfo", MEMINFO.replace("MemAvailable", "Other"))
    assert host.read(HOST_MEMORY)[""]["available"] == 610 * 1024


def test_interfaces(host: Host) -> None:
    host.write(
        "self/net/dev",
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
        "    lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0\n"
        "eth0:1:9000 30 1 2 0 0 0 0 800 20 4 8 0 16 0 0\n",
    )
    assert host.read(HOST_NETWORK) == {
        "lo": {"bytes_in": 100, "bytes_out": 100, "errors": 0, "packets_in": 2, "packets_out": 2},
        "eth0_1": {
            "bytes_in": 9000,
            "bytes_out": 800,
            "errors": 31,
            "packets_in": 30,
            "packets_out": 20,
        },
    }


def _diskstats(reads: int, sectors: int, spent: int) -> str:
    return (
        f"   8       1 sda1 {reads} 0 {sectors} {spent} {reads} 0 {sectors} {2 * spent} 3 0 0 0\n"
        "   8       2 sda2 1 0 8 1 1 0 8 1 0 0 0\n"
        "   7       0 loop0 1 0 8 1 1 0 8 1 0 0 0\n"
    )


def test_disks_are_there_once_wherever_they_are_mounted(host: Host, tmp_path: Path) -> None:
    spaced = tmp_path / "with a space"
    spaced.mkdir()
    escaped = str(spaced).replace(" ", r"\040")
    host.write(
        "self/mountinfo",
        "1 0 0:50 / / rw - overlay overlay rw\n"
        f"2 1 8:1 /a {escaped} rw,noatime master:1 shared:2 - ext4 /dev/sda1 rw\n"
        f"3 1 8:1 /b {tmp_path} rw - ext4 /dev/sda1 rw\n"  # bound once more
        f"4 1 7:0 / {tmp_path} ro - squashfs /dev/loop0 ro\n"
        "5 1 0:51 / /proc rw - proc proc rw\n"
        "6 1 0:52 / /net rw - nfs4 server:/export rw\n",
    )
    host.write("diskstats", _diskstats(10, 100, 1000))
    first = host.read(HOST_DISKS)
    assert set(first) == {"overlay", "sda1"}
    assert first["overlay"]["mount_point"] == "/"
    assert first["sda1"]["mount_point"] == str(spaced)
    assert first["sda1"]["read_bytes_per_sec"] == 0
    free = first["sda1"]["file_system_free_percent"]
    assert isinstance(free, float)
    assert 0 < free < 100

    host.now += 2
    host.write("diskstats", _diskstats(14, 120, 1010))
    second = host.read(HOST_DISKS)["sda1"]
    assert second["in_progress"] == 3
    assert (second["read_await"], second["write_await"]) == (2.5, 5.0)
    assert second["read_bytes_per_sec"] == second["write_bytes_per_sec"] == 20 * 512 / 2


def test_free_space_in_a_day_is_predicted_from_the_last_hour() -> None:
    trend = FreeSpaceTrend()
    predicted = [trend.predict(60.0 * minute, 90 - minute / 60) for minute in range(60)]
    assert predicted[:9] == [90 - minute / 60 for minute in range(9)], "too early to tell"
    assert predicted[9:] == pytest.approx([66 - minute / 60 for minute in range(9, 60)])
    shrunk = [trend.predict(3600.0 + 60 * minute, 89 - minute) for minute in range(60)]
    assert shrunk[-1] == 0, "it cannot be less than full"
    emptied = [trend.predict(7200.0 + 60 * minute, 30 + minute) for minute in range(60)]
    assert emptied[-1] == 100


def test_samples_within_a_minute_are_one_point() -> None:
    trend = FreeSpaceTrend()
    predicted = {trend.predict(tenth / 10, 90 - tenth / 10) for tenth in range(500)}
    assert predicted == {90 - tenth / 10 for tenth in range(500)}


def test_names_of_devices_can_stand_in_paths() -> None:
    assert safe_id("dm-0") == "dm-0"
    assert safe_id("cciss!c0d0/ü") == "cciss_c0d0__"


def test_without_proc_there_are_zeros_or_nothing(host: Host) -> None:
    assert host.read(HOST_CPUS) == {"all": dict.fromkeys(_names(HOST_CPUS), 0.0)}
    assert host.read(HOST_DISKS) == host.read(HOST_NETWORK) == {}
    assert host.read(HOST_MEMORY)[""]["free"] == 0
    assert host.read(MEMORY)[""] == {"rss": 0, "vmsize": 0}
    assert host.read(HOST)[""]["name"]


def test_the_process_shows_what_it_used(host: Host) -> None:
    host.write("self/statm", "200 100 50 1 0 30 0\n")
    page = os.sysconf("SC_PAGE_SIZE")
    assert host.read(MEMORY)[""] == {"rss": 100 * page, "vmsize": 200 * page}
    assert set(host.read(CPU)[""].values()) == {0.0}
    sum(range(1_000_000))
    host.now += 1e-6
    used = host.read(CPU)[""]
    assert float(used["total_percent"]) == pytest.approx(
        float(used["system_percent"]) + float(used["user_percent"])
    )
    assert float(used["total_percent"]) > 0


def _names(resource: Resource) -> list[str]:
    return [field.name for field in resource.source_fields]
