"""The commands of ``sessiontree mcp`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli.options import (
    AsJson,
    Backend,
    BudgetOfAll,
    Ceiling,
    ConfigFile,
    MayApprove,
    MayHold,
    StateDir,
    TalksTo,
    WorksIn,
    open_screen,
)

commands = typer.Typer(
    help="MCP servers that trees use, and trees as an MCP server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Server = Annotated[str, typer.Argument(metavar="SERVER", help="A server's name in the configuration.")]


@commands.command()
def serve(  # noqa: PLR0913 - each option is a parameter
    workspace: WorksIn = Path(),
    tier: Ceiling = "read-only",
    budget_usd: BudgetOfAll = None,
    agents: TalksTo = None,
    tools: MayHold = None,
    approve: MayApprove = False,
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
    with open_screen(locals()) as run_body:
        from sessiontree.cli.mcp_server import serve

        run_body(serve)


@commands.command("list")
def show_list(config: ConfigFile = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the configured servers, without connecting to them."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.mcp_client import show_list

        run_body(show_list)


@commands.command()
def check(
    server: Annotated[
        str | None, typer.Argument(metavar="[SERVER]", help="Only this server [default: all].")
    ] = None,
    config: ConfigFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Connect to servers, and show their tools with tiers and pins.

    Exit codes: 0 all are accepted as they are, 1 one is not, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.mcp_client import check

        run_body(check)


@commands.command()
def accept(
    server: _Server,
    yes: Annotated[bool, typer.Option("--yes", help="Accept without a question.")] = False,
    config: ConfigFile = None,
    state_dir: StateDir = None,
) -> None:
    """Show what is new or has changed at a server, and accept it.

    Exit codes: 0 accepted, 1 not accepted, 2 can't be reached.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.mcp_client import accept

        run_body(accept)


@commands.command()
def allow(
    server: _Server,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name at the server.")],
    tier: Annotated[
        str, typer.Option(help="The tier of its calls: read-only, workspace, system or elevated.")
    ],
    config: ConfigFile = None,
) -> None:
    """Give a tool of a server a tier, in the configuration.

    Exit codes: 0 changed, 2 can't be changed.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.mcp_client import allow

        run_body(allow)


@commands.command()
def login(server: _Server, config: ConfigFile = None) -> None:
    """Log in at a server: prints the address to open, and waits for the answer on this machine.

    Exit codes: 0 logged in, 2 failed.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.mcp_client import login

        run_body(login)
