"""The commands of ``sessiontree tokens`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli.options import AsJson, StateDir, run_body

commands = typer.Typer(
    help="Make, list and revoke the tokens with which other programs reach trees.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command()
def create(  # noqa: PLR0913 - each option is a parameter
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for, such as editor.")],
    workspace: Annotated[
        Path, typer.Option(help="The directory of its trees [default: this directory].", readable=False)
    ] = Path(),
    tier: Annotated[
        str, typer.Option(help="The highest tier of a call: read-only, workspace, system or elevated.")
    ] = "read-only",
    budget_usd: Annotated[
        float | None,
        typer.Option("--budget-usd", help="Most US dollars that all its trees together may spend."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: 12h, 30d or never [default: 30d].")
    ] = "30d",
    agents: Annotated[
        list[str] | None, typer.Option("--agent", help="An agent that it may talk to; may be repeated.")
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tool", help="A tool that its trees may hold; may be repeated [default: all]."),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Let it answer the requests and questions of its own trees.")
    ] = False,
    per_minute: Annotated[int, typer.Option(help="Requests that may begin in a minute.")] = 60,
    max_open: Annotated[int, typer.Option(help="Requests that may be open at once.")] = 64,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it: it is shown this once.

    Exit codes: 0 made, 2 can't be made.
    """
    run_body("tokens create", **locals())


@commands.command("list")
def show_list(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List all tokens, without their secrets."""
    run_body("tokens list", **locals())


@commands.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="A token's id, as `tokens list` shows it.")],
    state_dir: StateDir = None,
) -> None:
    """Let a token let nobody in any more, at once.

    Exit codes: 0 revoked, 2 no token has that id.
    """
    run_body("tokens revoke", **locals())
