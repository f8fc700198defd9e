"""The commands of ``sessiontree bench`` and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from sessiontree.cli.options import BODIES, AsJson, Backend, load, run_body

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
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's directory, or a suite that was run from here.")
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
        str | None, typer.Option("--dir", metavar="PATH", help="Directory of the run [default: runs/SUITE].")
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


@commands.command("list")
def list_suites(
    directory: Annotated[
        str, typer.Option("--dir", metavar="PATH", help="The directory whose runs are listed.")
    ] = "runs",
    as_json: AsJson = False,
) -> None:
    """List the installed suites, and the runs in a directory."""
    run_body("bench list", **locals())


@commands.command()
def prepare(
    suite: SuiteName,
    address: Annotated[
        str | None, typer.Option(help="Also on each node of this Ray cluster: auto, or host:port.")
    ] = None,
) -> None:
    """Make the environment of a suite before it runs, if it has one; `bench run` does it too.

    Exit codes: 0 it is ready, 1 a node failed, 2 it could not be made here.
    """
    run_body("bench prepare", **locals())


@commands.command()
def report(
    run: RunName,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a page that needs no other file (extra: plot)."),
    ] = None,
    plots: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Write pictures into this directory, as PNG (extra: plot)."),
    ] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write the run's tables, as Parquet in its directory.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report a run, also while it goes on: pass rates with intervals, cost, time, tokens, failures.

    Exit codes: 0 reported, 2 no such run, or no results yet.
    """
    run_body("bench report", **locals())


@commands.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A run's directory.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The directory of another run of the suite.")],
    as_json: AsJson = False,
) -> None:
    """Compare two runs of a suite, sample by sample; differences are B minus A.

    Exit codes: 0 compared, 2 no such run, or they can't be compared.
    """
    run_body("bench compare", **locals())


@commands.command()
def show(
    run: RunName,
    sample: Annotated[str, typer.Argument(metavar="SAMPLE", help="The sample's id.")],
    epoch: Annotated[
        int | None,
        typer.Option(help="Which epoch [default: the first that did not pass, or the first]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a sample of a run: its scores, its attempts, its tree and the transcript.

    Exit codes: 0 shown, 2 no such run, sample or epoch.
    """
    run_body("bench show", **locals(), show_tree=load(BODIES["tree"]))
