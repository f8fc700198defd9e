"""The commands of ``sessiontree cron`` and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from sessiontree.cli.options import AsJson, StateDir, WorkspaceOption, open_screen

commands = typer.Typer(
    help="List the timed jobs of trees, and run, pause, resume or remove one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, such as c1.")]
OfTree = Annotated[
    str | None,
    typer.Option(
        "--tree", help="A tree's id, or the beginning of it [default: the only one with such a job]."
    ),
]


@commands.command("list")
def show_list(
    tree: Annotated[
        str | None, typer.Option("--tree", help="Only jobs of this tree: its id, or the beginning of it.")
    ] = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the timed jobs of all trees, open or not. Never writes to the journal."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.cron import show_list

        run_body(show_list)


@commands.command()
def show(
    job: JobId,
    tree: OfTree = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one timed job: its text, its times, what it starts, for whom. Never writes to the journal."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.cron import show

        run_body(show)


@commands.command()
def runs(
    job: JobId,
    tree: OfTree = None,
    limit: Annotated[int, typer.Option(help="Most entries shown: the newest.", min=1, max=50)] = 20,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show when a timed job ran, and which of its times it did not run at. Never writes to the journal."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.cron import show_runs

        run_body(show_runs)


@commands.command()
def run(
    job: JobId,
    tree: OfTree = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a timed job of a live tree now; its own times stay as they are."""
    with open_screen({**locals(), "action": "run"}) as run_body:
        from sessiontree.cli.cron import change

        run_body(change)


@commands.command()
def pause(
    job: JobId,
    tree: OfTree = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Pause a timed job of a live tree: its times are skipped until it is resumed."""
    with open_screen({**locals(), "action": "pause"}) as run_body:
        from sessiontree.cli.cron import change

        run_body(change)


@commands.command()
def resume(
    job: JobId,
    tree: OfTree = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Resume a paused job of a live tree."""
    with open_screen({**locals(), "action": "resume"}) as run_body:
        from sessiontree.cli.cron import change

        run_body(change)


@commands.command()
def remove(
    job: JobId,
    tree: OfTree = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove a timed job of a live tree; a run that goes on is not stopped."""
    with open_screen({**locals(), "action": "remove"}) as run_body:
        from sessiontree.cli.cron import change

        run_body(change)
