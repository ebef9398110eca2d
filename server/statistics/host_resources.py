"""Every resource of the host, with all its fields; see `server.statistics.resources`.

Source: AMPS Monitoring Guide, Host Statistics; Table Reference.
"""

from __future__ import annotations

from typing import Final

from server.statistics.schema import (
    INTEGER,
    REAL,
    Resource,
    average,
    cumulative,
    fixed,
    rate,
    snapshot,
)

HOST: Final = Resource(
    "host",
    "",
    "",
    (fixed("name", "the host's name in the network"),),
)

HOST_CPUS: Final = Resource(
    "host/cpus",
    "cpu",
    "HCPUS",
    (
        snapshot("idle_percent", "share of time with nothing to do, not waiting for a disk", REAL),
        snapshot("iowait_percent", "share of time spent waiting for a disk", REAL),
        snapshot("system_percent", "share of time spent in the kernel", REAL),
        snapshot("user_percent", "share of time spent in programs", REAL),
    ),
)

HOST_DISKS: Final = Resource(
    "host/disks",
    "disk",
    "HDISKS",
    (
        snapshot("file_system_free_percent", "share of the file system that is free", REAL),
        fixed("mount_point", "where the file system is mounted"),
        snapshot("in_progress", "requests under way"),
        snapshot(
            "predicted_free_percent",
            "share that will be free in 24 hours if usage changes as in the last hour; not in AMPS",
            REAL,
        ),
        average("read_await", "milliseconds that a read takes", REAL),
        average("write_await", "milliseconds that a write takes", REAL),
        average("read_bytes_per_sec", "bytes read a second", INTEGER),
        average("write_bytes_per_sec", "bytes written a second", INTEGER),
    ),
)

HOST_MEMORY: Final = Resource(
    "host/memory",
    "",
    "HMEMORY",
    (
        snapshot("anonymous", "bytes of anonymous memory"),
        snapshot("available", "bytes that programs can have"),
        snapshot("buffers", "bytes used as buffers of files"),
        snapshot("cached", "bytes used as cache of files"),
        snapshot("free", "bytes used for nothing"),
        snapshot("in_use", "bytes in use"),
        snapshot("swap_free", "bytes of swap memory used for nothing"),
        fixed("swap_total", "bytes of swap memory", INTEGER),
        fixed("total", "bytes of memory", INTEGER),
    ),
)

HOST_NETWORK: Final = Resource(
    "host/network",
    "interface",
    "HNET",
    (
        cumulative("bytes_in", "bytes received"),
        rate("bytes_in_per_second", "bytes_in", "bytes received a second"),
        cumulative("bytes_out", "bytes sent"),
        rate("bytes_out_per_second", "bytes_out", "bytes sent a second"),
        cumulative("errors", "packets dropped or damaged, both ways"),
        cumulative("packets_in", "packets received"),
        cumulative("packets_out", "packets sent"),
    ),
)
