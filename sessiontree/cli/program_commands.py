"""The commands of ``sessiontree program`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli.options import AsJson, ConfigFile, StateDir, WorkspaceOption, open_screen

commands = typer.Typer(
    help="List and check the owner's saved programs, and save one from a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command("list")
def show_list(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the saved programs next to the configuration, and the files there that can't be used."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.program import show_list

        run_body(show_list)


@commands.command()
def check(
    file: Annotated[
        Path, typer.Argument(help="A saved program: a file *.py with a typed main.", readable=False)
    ],
    agent: Annotated[str, typer.Option(help="The agent that runs it, from the configuration.")] = "default",
    kind: Annotated[str, typer.Option(help="The kind of its session: main, branch or worker.")] = "main",
    approve: Annotated[
        str | None,
        typer.Option(help="The approval mode: auto, smart, always or never [default: as configured]."),
    ] = None,
    workspace: WorkspaceOption = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check a saved program's types, and show which tools, tiers and approvals it will need.

    Nothing of it is run.

    Exit codes: 0 it fits the agent, 1 it does not, 2 can't check.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.program import check

        run_body(check)


@commands.command()
def save(  # noqa: PLR0913 - each option is a parameter
    tree: Annotated[str, typer.Argument(metavar="TREE", help="A tree's id, or the beginning of it.")],
    call: Annotated[str, typer.Argument(metavar="CALL", help="Key of the program's call, such as 1.0.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the program is to be called.")],
    session: Annotated[str, typer.Option(help="The session that made the call.")] = "main",
    description: Annotated[
        str | None, typer.Option(help="What it does, in one line [default: where it was saved from].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a saved program of that name.")] = False,
    workspace: WorkspaceOption = None,
    config: ConfigFile = None,
    state_dir: StateDir = None,
) -> None:
    """Save a program that a session ran as a file next to the configuration."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.program import save

        run_body(save)
