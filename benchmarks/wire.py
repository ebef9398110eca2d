"""Messages a second from one publisher to one subscriber, beside a relay that only copies bytes."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import amperage, load, median, print_table, relay

SIZES = (256, 1024)
RELAYS = {"chunk": "relay, copies what it reads", "msg": "relay, a write a message"}


def main() -> None:
    """Measure and print."""
    with amperage() as (port, _):
        rows = [["Amperage", *rates(port)]]
    for how, name in RELAYS.items():
        with relay(how) as port:
            rows.append([name, *rates(port, "-proto", "raw")])
    print_table(
        "One publisher to one subscriber, messages a second (median of 3 runs)",
        ["", *(f"{size} B" for size in SIZES)],
        rows,
    )


def rates(port: int, *arguments: str) -> list[float]:
    """The rate at each size, in messages a second."""
    return [
        median(partial(load, port, "-size", str(size), "-secs", "3", *arguments), "msg_s")
        for size in SIZES
    ]


if __name__ == "__main__":
    main()
