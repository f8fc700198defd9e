"""The commands of ``sessiontree bench`` and their options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from sessiontree.cli.options import AsJson, open_screen

commands = typer.Typer(
    help="Run benchmark suites over trees, and look at their results.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
DriverPlaces = Literal["one", "per-node"]
SuiteName = Annotated[
    str,
    typer.Argument(
        metavar="SUITE", help="module:suite, file.py:suite, a suite.toml, or the name of an installed suite."
    ),
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's directory, or a suite that was run from here.")
]

SuiteOfRun = Annotated[
    str | None, typer.Option(help="The suite [default: as the run's last command named it].")
]
Samples = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHICH",
        help="Only these samples: ids, patterns such as 'add-*', a range such as 1..50, or tag:NAME; "
        "commas between them; repeatable.",
    ),
]
FailOnError = Annotated[
    str | None,
    typer.Option(
        metavar="N|RATE",
        help="Stop at so many errors of the suite's code, or above such a share (0.2, 20%); 100% = never "
        "[default: when the first ten samples all end in an error].",
    ),
]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Go on with other code than the run was made with.")
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
        float | None,
        typer.Option(help="Seconds of work for one sample, waits not counted [default: the suite's]."),
    ] = None,
    wall_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds for one sample by the clock on the wall [default: the suite's]."),
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Most US dollars that the whole run may spend.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="How many samples at a time, over all drivers.")] = 16,
    address: Annotated[str | None, typer.Option(help="Run on this Ray cluster: auto, or host:port.")] = None,
    backend: Annotated[
        str | None, typer.Option(help="ray: a process per session; local: all in this one [default: ray].")
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(help="How many supervisors share the trees: a number, or per-node [default: 1]."),
    ] = None,
    drivers: Annotated[
        DriverPlaces,
        typer.Option(help="Who works on the samples: this program, or one on each node that mounts --dir."),
    ] = "one",
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="Where Workers and Branches run, as Runtime(placement=…) takes it."
        ),
    ] = None,
    runtime: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML file with further options of the Runtime, by name."),
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Where the journals are, on a disk of each node [default: DIR/state]."
        ),
    ] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="PATH", help="Directory of the run [default: runs/SUITE].")
    ] = None,
    retries: Annotated[
        int, typer.Option(help="How often a sample may be lost by its own doing before it has failed.")
    ] = 3,
    provider_wait: Annotated[
        float, typer.Option(help="Seconds to wait for a provider that does not answer, before the run ends.")
    ] = 3_600.0,
    keep: Annotated[str, typer.Option(help="Whose workspaces are kept: failed, all or none.")] = "failed",
    samples: Samples = None,
    fail_on_error: FailOnError = None,
    accept_changes: AcceptChanges = False,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A name for the run; repeatable.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Something to note of the run; repeatable.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line; the last one is the result.")
    ] = False,
) -> None:
    """Run a suite, or go on with an interrupted run: each sample is scored once.

    Exit codes: 0 all samples are scored, 1 some are not, 2 can't begin, 130 after Ctrl-C.
    """
    samples, tags, metadata = samples or [], tags or [], metadata or []
    with open_screen(locals()) as run_body:
        from sessiontree.bench.run_commands import run

        run_body(run)


@commands.command("list")
def list_suites(
    directory: Annotated[
        str, typer.Option("--dir", metavar="PATH", help="The directory whose runs are listed.")
    ] = "runs",
    as_json: AsJson = False,
) -> None:
    """List the installed suites, and the runs in a directory."""
    with open_screen(locals()) as run_body:
        from sessiontree.bench.run_commands import list_suites

        run_body(list_suites)


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
    with open_screen(locals()) as run_body:
        from sessiontree.bench.run_commands import prepare

        run_body(prepare)


@commands.command()
def matrix(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Models, suites and settings, in TOML; see docs/matrix.md.")
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="PATH", help="Folder of the runs and the page [default: the file's]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run each of some models on each of some suites, or go on: all runs in one folder, with one page.

    Exit codes: 0 all runs are complete, 1 some are not, 2 the file is wrong, 130 after Ctrl-C.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.bench.matrix.matrix_run import run_matrix_command

        run_body(run_matrix_command)


@commands.command()
def report(
    run: RunName,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a page that needs no other file (extra: plot)."),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Write a folder of pages of all samples, too; the page links to them."
        ),
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
    with open_screen(locals()) as run_body:
        from sessiontree.bench.result_commands import report

        run_body(report)


@commands.command()
def metrics(
    run: RunName,
    reducers: Annotated[
        list[str] | None,
        typer.Option(
            "--reducer",
            metavar="NAME",
            help="mean, median, mode, max, at_least_K, pass_at_K or pass_hat_K; may be repeated.",
        ),
    ] = None,
    by: Annotated[str, typer.Option(metavar="FIELD", help="Groups by this field of the metadata.")] = "",
    cluster: Annotated[
        str,
        typer.Option(metavar="FIELD", help="Samples with an equal value of this field are not independent."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what epochs and groups of samples come to: pass rates, pass@k, pass^k, with standard errors.

    Exit codes: 0 shown, 2 no such run, reducer or field.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.bench.result_commands import show_metrics

        run_body(show_metrics)


@commands.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A run's directory.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The directory of another run of the suite.")],
    others: Annotated[
        list[str] | None, typer.Argument(metavar="C", help="More runs; each is compared with A.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs of a suite, sample by sample; differences are B minus A. More runs are too.

    Exit codes: 0 compared, 2 no such run, or they can't be compared.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.bench.result_commands import compare

        run_body(compare)


@commands.command()
def show(
    run: RunName,
    sample: Annotated[str, typer.Argument(metavar="SAMPLE", help="The sample's id.")],
    epoch: Annotated[
        int | None,
        typer.Option(help="Which epoch [default: the first that did not pass, or the first]."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write its tree to this file instead, as a page of its own."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a sample of a run: its scores, its attempts, its tree and the transcript.

    Exit codes: 0 shown, 2 no such run, sample or epoch.
    """
    if html is not None and as_json:
        raise typer.BadParameter("--html writes a page; leave --json out")
    with open_screen(locals()) as run_body:
        from sessiontree.bench.result_commands import show
        from sessiontree.cli import tree, tree_page

        run_body(partial(show, show_tree=tree.show, save_tree=tree_page.save))


@commands.command()
def retry(  # noqa: PLR0913 - each option is a parameter
    run: RunName,
    statuses: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            help="How they ended: error, timeout, budget, empty, failed or not-passed; repeatable.",
        ),
    ] = None,
    samples: Annotated[
        list[str] | None, typer.Option("--sample", help="Only these: an id or a pattern; repeatable.")
    ] = None,
    suite: SuiteOfRun = None,
    model: Annotated[str | None, typer.Option(help="The model [default: the run's].")] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="How many samples at a time [default: as before].")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Run on this Ray cluster: auto, or host:port.")] = None,
    backend: Annotated[str | None, typer.Option(help="ray or local [default: as before].")] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Most US dollars that the whole run may spend.")
    ] = None,
    fail_on_error: FailOnError = None,
    accept_changes: AcceptChanges = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line; the last one is the result.")
    ] = False,
) -> None:
    """Solve samples of a run again; their earlier scores stay in its history.

    Exit codes: 0 all samples are scored, 1 some are not, 2 can't begin, 130 after Ctrl-C.
    """
    with open_screen(
        {
            "run": run,
            "suite": suite,
            "statuses": statuses or [],
            "samples": samples or [],
            "as_json": as_json,
            "model": model,
            "concurrency": concurrency,
            "address": address,
            "backend": backend,
            "max_cost_usd": max_cost,
            "fail_on_error": fail_on_error,
            "accept_changes": accept_changes,
        }
    ) as run_body:
        from sessiontree.bench.mend_commands import retry

        run_body(retry)


@commands.command()
def rescore(
    run: RunName,
    scorers: Annotated[
        list[str] | None, typer.Option("--scorer", help="Only this scorer; repeatable [default: all].")
    ] = None,
    samples: Samples = None,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    suite: SuiteOfRun = None,
    accept_changes: AcceptChanges = False,
    as_json: AsJson = False,
) -> None:
    """Let scorers judge again what a run has kept: no model solves anything, and earlier scores stay.

    Exit codes: 0 done, 1 some scores stay as they are: a scorer failed, or something was not kept;
    2 can't begin.
    """
    with open_screen(
        {
            "run": run,
            "suite": suite,
            "scorers": scorers or [],
            "samples": samples or [],
            "reason": reason,
            "accept_changes": accept_changes,
            "as_json": as_json,
        }
    ) as run_body:
        from sessiontree.bench.mend_commands import rescore

        run_body(rescore)


@commands.command()
def pause(run: RunName) -> None:
    """Let no more samples of a run begin; those that are worked on go on to their end."""
    with open_screen({"run": run}) as run_body:
        from sessiontree.bench.mend_commands import pause

        run_body(pause)


@commands.command()
def resume(run: RunName) -> None:
    """Let a paused run go on."""
    with open_screen({"run": run}) as run_body:
        from sessiontree.bench.mend_commands import resume

        run_body(resume)


@commands.command("set")
def set_settings(
    run: RunName,
    values: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", help="concurrency=N, or sample_timeout=SECONDS or none."),
    ],
) -> None:
    """Change settings of a run while it goes on; its programs take them over within seconds."""
    with open_screen({"run": run, "values": values}) as run_body:
        from sessiontree.bench.mend_commands import set_settings

        run_body(set_settings)


@commands.command()
def view(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…",
            help="Directories of runs, suites that were run from here, or a directory of runs.",
        ),
    ],
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    html: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write the runs as a folder that needs no server, instead."),
    ] = None,
    port: Annotated[int, typer.Option(help="The server's port; 0 = one that is free.")] = 0,
) -> None:
    """Look at runs in a browser, also while they go on: samples, answers, scores with reasons, trees.

    Exit codes: 0 ended or written, 2 no such run, or it can't be served.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.bench.view_command import view

        run_body(view)


@commands.command("inspect-worker")
def inspect_worker(
    definition: Annotated[
        str, typer.Argument(metavar="DEFINITION", help="A Python file that calls inspect_ai's eval_set().")
    ],
    log_dir: Annotated[
        str,
        typer.Option(metavar="DIR", help="Where the logs go; on a cluster, a directory of every node."),
    ] = "logs",
    env: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Requirements of its environment [default: inspect_ai and inspect_evals]."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="How many tasks run at a time.")] = 4,
    attempts: Annotated[int, typer.Option(help="How often a task is begun at most.")] = 3,
    address: Annotated[
        str | None, typer.Option(help="Run the workers on this Ray cluster: auto, or host:port.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run an eval set of inspect_ai, a worker for each task; run it again to go on with what is left.

    Exit codes: 0 every task is complete, 1 some are not, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.bench.inspect_sets.worker_command import inspect_worker

        run_body(inspect_worker)
