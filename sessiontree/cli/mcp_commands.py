"""The commands of ``sessiontree mcp`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli.options import Backend, ConfigFile, StateDir, run_body

commands = typer.Typer(
    help="MCP servers that trees use, and trees as an MCP server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command()
def serve(  # noqa: PLR0913 - each option is a parameter
    workspace: Annotated[
        Path, typer.Option(help="The directory of its trees [default: this directory].", readable=False)
    ] = Path(),
    tier: Annotated[
        str, typer.Option(help="The highest tier of a call: read-only, workspace, system or elevated.")
    ] = "read-only",
    budget_usd: Annotated[
        float | None, typer.Option("--budget-usd", help="Most US dollars that one tree may spend.")
    ] = None,
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
    config: ConfigFile = None,
    state_dir: StateDir = None,
    backend: Backend = "ray",
) -> None:
    """Serve the program that started this one, over stdin and stdout, until it closes them.

    A client of MCP starts this command itself: give it the command "sessiontree" and its arguments, such as
    "mcp serve --tier workspace --workspace /src". Its tools begin trees, continue them and show what they do.

    The options are the bounds of all its trees, which have them in their journals. Without --approve, what
    needs a yes waits for you: answer with `sessiontree approvals`, or in `sessiontree serve`. With it, the
    client's own person answers, within the tier.

    Trees outlive the client: the next one that is started with the same state directory finds them by their
    names. Nothing but the protocol is written to stdout; messages go to stderr.

    Programs on other machines, and those that start nothing, come in by `sessiontree serve --doors`
    with a token instead.

    Exit codes: 0 served, 2 can't begin.
    """
    run_body("mcp serve", **locals())
