"""The commands of ``sessiontree tokens`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli.options import (
    AsJson,
    BudgetOfAll,
    Ceiling,
    MayApprove,
    MayHold,
    StateDir,
    TalksTo,
    WorksIn,
    open_screen,
)

commands = typer.Typer(
    help="Make, list and revoke the tokens with which other programs reach trees.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command()
def create(  # noqa: PLR0913 - each option is a parameter
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for, such as editor.")],
    workspace: WorksIn = Path(),
    tier: Ceiling = "read-only",
    budget_usd: BudgetOfAll = None,
    expires: Annotated[str | None, typer.Option(help="When it ends: 12h, 30d or never.")] = "30d",
    agents: TalksTo = None,
    tools: MayHold = None,
    approve: MayApprove = False,
    per_minute: Annotated[int, typer.Option(help="Requests that may begin in a minute.")] = 60,
    max_open: Annotated[int, typer.Option(help="Requests that may be open at once.")] = 64,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it: it is shown this once.

    Exit codes: 0 made, 2 can't be made.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.tokens import create

        run_body(create)


@commands.command("list")
def show_list(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List all tokens, without their secrets."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.tokens import show_list

        run_body(show_list)


@commands.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="A token's id, as `tokens list` shows it.")],
    state_dir: StateDir = None,
) -> None:
    """Let a token let nobody in any more, at once.

    Exit codes: 0 revoked, 2 no token has that id.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.tokens import revoke

        run_body(revoke)
