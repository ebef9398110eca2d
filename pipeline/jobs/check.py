"""`amps-pipeline check`: compares the views of a server with the same views computed in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    import argparse

    from pipeline.jobs.run import JobRun
    from pipeline.views.check import ViewCheck

HELP: Final = "compare the views of a running server with the same views in Spark"
_MAX_SHOWN_DIFFERENCES: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("config", help="configuration of the server")
    parser.add_argument(
        "--server",
        default="tcp://localhost:9007/amps",
        help="URI of the server, without the message type (tcp://localhost:9007/amps)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one line per view")


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed, or a view differs.
    """
    from config_schema.spec import ViewSpec

    spec = read_configuration(options.config)
    views = [topic.ref for topic in spec.sow if isinstance(topic, ViewSpec)]
    if run.is_dry:
        run.print_text("\n".join([f"{options.config} has {len(views)} views", *map(str, views)]))
        return
    if not views:
        run.print_text(f"{options.config} has no views")
        return
    from pipeline.views.check import check_views

    different = 0
    for verdict in check_views(run.spark(), spec, options.server):
        count = len(verdict.differences)
        different += bool(count)
        if options.json:
            run.print_json(_as_data(verdict))
            continue
        run.print_text(f"{verdict.view}: {verdict.records} records, {count or 'no'} differences")
        for difference in verdict.differences[:_MAX_SHOWN_DIFFERENCES]:
            run.print_text(f"  {difference.key}")
            run.print_text(f"    server {_text(difference.server)}")
            run.print_text(f"    Spark  {_text(difference.spark)}")
    if different:
        raise PipelineError(f"{different} of {len(views)} views differ")


def _as_data(verdict: ViewCheck) -> dict[str, object]:
    return {
        "view": str(verdict.view),
        "records": verdict.records,
        "differences": [
            {
                "sow_key": difference.key,
                "server": _json_text(difference.server),
                "spark": _json_text(difference.spark),
            }
            for difference in verdict.differences
        ],
    }


def _json_text(body: bytes | None) -> str | None:
    return None if body is None else _text(body)


def _text(body: bytes | None) -> str:
    return "has no such record" if body is None else body.decode("utf-8", "backslashreplace")
