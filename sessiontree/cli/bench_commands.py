"""The commands of ``sessiontree bench`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli.options import Backend, run_body

commands = typer.Typer(
    help="Run benchmark suites over trees, and look at their results.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
SuiteName = Annotated[
    str,
    typer.Argument(
        metavar="SUITE", help="module:suite, file.py:suite, a suite.toml, or the name of an installed suite."
    ),
]


@commands.command()
def run(  # noqa: PLR0913 - each option is a parameter
    suite: SuiteName,
    model: Annotated[
        str | None,
        typer.Option(help="The model: a configured name, or provider:model [default: the suite's]."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="How often each sample is solved [default: the suite's].")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many samples, the first ones.")] = None,
    sample_timeout: Annotated[
        float | None, typer.Option(help="Seconds for one sample [default: the suite's].")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Most US dollars that the whole run may spend.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="How many samples at a time.")] = 16,
    address: Annotated[str | None, typer.Option(help="Run on this Ray cluster: auto, or host:port.")] = None,
    backend: Backend = "ray",
    shards: Annotated[
        str, typer.Option(help="How many supervisors share the trees: a number, or per-node.")
    ] = "1",
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory of the run [default: runs/SUITE].", readable=False)
    ] = None,
    retries: Annotated[
        int, typer.Option(help="How many infrastructure errors a sample may have before it has failed.")
    ] = 3,
    keep: Annotated[str, typer.Option(help="Whose workspaces are kept: failed, all or none.")] = "failed",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line; the last one is the result.")
    ] = False,
) -> None:
    """Run a suite, or go on with an interrupted run: each sample is scored once.

    Exit codes: 0 all samples are scored, 1 some are not, 2 can't begin, 130 after Ctrl-C.
    """
    run_body("bench run", **locals())
