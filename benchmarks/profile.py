"""Where the server's processor time goes while it does one work, by stage and by function.

    python -m benchmarks profile records-log

The load generator keeps the server busy while py-spy samples its stacks, those of compiled code
among them. The server stops for a moment for each sample, which costs rate, and no shares. System
calls are counted to the stage that made them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amperage import compiled_modules
from amperage.wire import framing
from benchmarks.harness import Measurement, tool
from benchmarks.stages import Stages, compiled_names, read
from benchmarks.tables import print_table
from benchmarks.works import WORKS, Work, serving

SECONDS: Final = 8.0
WARM: Final = 1.0
SAMPLES_A_SECOND: Final = 100
FUNCTIONS: Final = 20
"""How many functions are shown."""


def main(arguments: Sequence[str] = ()) -> None:
    """Profile what the command line names, and print.

    Args:
        arguments: the command line without the program's name.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks profile",
        description="Show where the server's processor time goes while it does one work.",
        epilog="\n".join(f"{work.name:<17} {work.what}" for work in WORKS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("work", choices=WORKS, metavar="WORK", help="one of those below")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long it is sampled")
    parser.add_argument(
        "--folded", type=Path, help="a file to write the stacks to, for flame graphs"
    )
    options = parser.parse_args(arguments)
    sampler = _sampler()
    tool("ampsload")
    with tempfile.TemporaryDirectory() as directory:
        folded = options.folded or Path(directory, "folded.txt")
        found = _sample(WORKS[options.work], options.seconds, sampler, folded)
        names = compiled_names(name.partition(".")[2] for name in compiled_modules.COMPILED)
        stages = read(folded.read_text().splitlines(), names)
    _print(WORKS[options.work], found, stages)


def _sampler() -> str:
    """The program that samples; it is installed where everything is (`make install`)."""
    beside = Path(sys.executable).with_name("py-spy")
    path = str(beside) if beside.exists() else shutil.which("py-spy")
    if path is None:
        sys.exit(
            "py-spy is not installed: expected it beside Python or on PATH (pip install py-spy)"
        )
    return path


def _sample(work: Work, seconds: float, sampler: str, folded: Path) -> Measurement:
    found: list[Measurement] = []
    with serving(work) as server:
        # One second more than what is sampled, since the sampler takes a moment to begin.
        def load_it() -> None:
            found.append(work.load(server, seconds=seconds + 1, warm=WARM))

        load = threading.Thread(target=load_it)
        load.start()
        threading.Event().wait(WARM)
        command = [sampler, "record", "--native", "--pid", str(server.pid), "--format", "raw"]
        command += ["--rate", str(SAMPLES_A_SECOND), "--duration", str(round(seconds))]
        run = subprocess.run(
            [*command, "--output", str(folded)], capture_output=True, text=True, check=False
        )
        load.join()
    if run.returncode != 0:
        sys.exit(f"py-spy could not sample the server: {run.stderr.strip()}")
    if not found:
        sys.exit("the load generator failed: see above")
    return found[0]


def _print(work: Work, found: Measurement, stages: Stages) -> None:
    cost, total = found["srv_cpu_us_msg"], stages.samples.total()
    form = "as it is written" if str(framing.__file__).endswith(".py") else "compiled"
    print_table(
        f"{work.what}: {cost:.2f} us of processor time a message ({form}; {total:,} samples)",
        ["stage", "share", "us/message", "of it system calls"],
        [
            [
                stage,
                f"{count / total:.0%}",
                cost * count / total,
                cost * stages.calls[stage] / total,
            ]
            for stage, count in stages.samples.most_common()
        ],
    )
    print_table(
        "Functions, with the libraries and system calls that they call",
        ["function", "stage", "share", "us/message"],
        [
            [function, stage, f"{count / total:.1%}", cost * count / total]
            for (stage, function), count in stages.functions.most_common(FUNCTIONS)
        ],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
