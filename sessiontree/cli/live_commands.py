"""The commands about a live tree: its requests, its end, and talking to it."""

from __future__ import annotations

from typing import Annotated

import typer

from sessiontree.cli.options import (
    AsJson,
    Backend,
    ConfigFile,
    MainAgent,
    ModelName,
    OpenTree,
    Session,
    StateDir,
    View,
    Workspace,
    open_screen,
)


def approvals(  # noqa: PLR0913 - each option is a parameter
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: Annotated[
        str | None, typer.Option("--tree", help="A tree's id [default: all that are open, else the newest].")
    ] = None,
    as_json: AsJson = False,
    approve: Annotated[str | None, typer.Option(help="Approve the request with this id.")] = None,
    deny: Annotated[str | None, typer.Option(help="Deny the request with this id.")] = None,
    forget: Annotated[
        str | None, typer.Option(help="Lift the denial of the request with this id: it is asked again.")
    ] = None,
    answer_id: Annotated[
        str | None, typer.Option("--answer", help="Answer the question with this id, by --text.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="An answer: numbers of options, or words. Once for each question."),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; a denial shows it to the model.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List all requests, decided ones too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running and ask about new requests.")] = False,
) -> None:
    """List approval requests and questions that wait; at a terminal, answer them one by one.

    Answers go to the live runtime of the workspace; without one the journal is only read.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.approvals import approvals

        run_body(approvals)


def cancel(
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: OpenTree = None,
    session: Session = "main",
    reason: Annotated[str | None, typer.Option(help="Why; written to the journal.")] = None,
    as_json: AsJson = False,
) -> None:
    """End a session of a live tree and all sessions below it; print how each ended."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.cancel import cancel

        run_body(cancel)


def interrupt(
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: OpenTree = None,
    session: Session = "main",
    reason: Annotated[str | None, typer.Option(help="Why; sent to callers that wait for a reply.")] = None,
    as_json: AsJson = False,
) -> None:
    """Stop the work of a session of a live tree and of all sessions below it; the sessions stay open."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.cancel import interrupt

        run_body(interrupt)


def chat(  # noqa: PLR0913 - each option is a parameter
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: OpenTree = None,
    session: Session = "main",
    model: ModelName = None,
    agent: MainAgent = None,
    config: ConfigFile = None,
    backend: Backend = "ray",
    view: View = False,
) -> None:
    """Chat with a session of a live tree; approval requests are shown in between.

    With --model, --agent or --config a tree of its own is opened, or the tree of --tree is resumed.

    Exit codes: 0 left or replied, 1 the input ended and its last message has no reply, 2 can't begin, 130
    after Ctrl-C.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.chat import chat

        run_body(chat)
