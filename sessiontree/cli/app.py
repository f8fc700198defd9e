"""The commands and their options. Each body is loaded when it is asked for, so that help is quick."""

from __future__ import annotations

import importlib
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sessiontree.cli import memory_app
from sessiontree.cli.options import AsJson, StateDir
from sessiontree.version import VERSION

BODIES = {
    "survey": "sessiontree.survey.command:survey",
    "resume": "sessiontree.survey.command:resume",
    "ask": "sessiontree.survey.ask:ask",
    "tree": "sessiontree.cli.tree:show",
    "trees": "sessiontree.cli.tree:show_list",
    "follow": "sessiontree.cli.follow:follow",
    "approvals": "sessiontree.cli.approvals:approvals",
    "cancel": "sessiontree.cli.cancel:cancel",
    "interrupt": "sessiontree.cli.cancel:interrupt",
    "chat": "sessiontree.cli.chat:chat",
    "doctor": "sessiontree.cli.doctor:doctor",
    "tools": "sessiontree.cli.tools:tools",
    **memory_app.BODIES,
}
"""What each command does: a function of a screen and its options that returns the exit code."""

_RUNNER = "sessiontree.cli.run_loop:run"

app = typer.Typer(
    name="sessiontree",
    help="Run trees of LLM-agent sessions, and look at what they did.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Backend = Annotated[str, typer.Option(help="What runs the sessions: ray (actors) or local (this process).")]
Workspace = Annotated[
    Path | None, typer.Argument(help="The workspace [default: this directory].", readable=False)
]
OpenTree = Annotated[
    str | None, typer.Option("--tree", help="An open tree's id [default: the only one that is open].")
]
Session = Annotated[str, typer.Option(help="A session's path, such as main/b1.")]


def main() -> None:
    """Run the command line; what a terminal or pipe has no letters for is shown as escapes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # whoever started it closed it: the next file opened would take its place
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for good
        elif mode == "w" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


def _run(name: str, **options: Any) -> NoReturn:
    code = _load(_RUNNER)(lambda: _load(BODIES[name]), options)
    raise typer.Exit(code)


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sessiontree {VERSION}")
        raise typer.Exit


@app.callback()
def _sessiontree(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def survey(
    path: Annotated[Path, typer.Argument(help="The directory to survey.", readable=False)],
    approve: Annotated[
        str | None,
        typer.Option(
            help="Who allows what needs approval: auto, smart, always (you are asked) or never "
            "[default: always at a terminal, else auto]."
        ),
    ] = None,
    state_dir: StateDir = None,
    backend: Backend = "ray",
    out: Annotated[str, typer.Option(help="Where the report goes, inside the directory.")] = "SURVEY.md",
) -> None:
    """Survey a directory with a tree of sessions and write a report.

    Exit codes: 0 written, 1 failed, 2 can't begin, 3 an earlier report was kept, 130 after Ctrl-C.
    """
    _run("survey", path=path, approve=approve, state_dir=state_dir, backend=backend, out=out)


@app.command()
def resume(
    tree: Annotated[
        str | None, typer.Argument(help="A tree's id [default: the newest unfinished survey].")
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(help="The surveyed directory [default: this one].", readable=False)
    ] = None,
    state_dir: StateDir = None,
    backend: Backend = "ray",
) -> None:
    """Finish a survey that was interrupted or killed."""
    _run("resume", tree_or_path=tree, path=path, state_dir=state_dir, backend=backend)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What is asked: plain words, or names.")],
    path: Annotated[
        Path, typer.Argument(help="The surveyed directory [default: this one].", readable=False)
    ] = Path(),
    limit: Annotated[int, typer.Option(help="Most places shown, 1 to 20.")] = 3,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    backend: Annotated[
        str, typer.Option(help="What runs the one session: local (this process) or ray (an actor).")
    ] = "local",
) -> None:
    """Say where in a surveyed directory something is: the best places, and what stands there now.

    Exit codes: 0 found, 1 nothing fits, 2 can't begin, such as before the first survey.
    """
    _run(
        "ask",
        question=question,
        path=path,
        limit=limit,
        as_json=as_json,
        state_dir=state_dir,
        backend=backend,
    )


@app.command()
def tree(
    path: Annotated[
        Path | None, typer.Argument(help="The workspace [default: this directory].", readable=False)
    ] = None,
    state_dir: StateDir = None,
    tree_id: Annotated[str | None, typer.Option("--tree", help="A tree's id [default: the newest].")] = None,
    as_json: AsJson = False,
    listed: Annotated[bool, typer.Option("--list", help="List all trees instead.")] = False,
    followed: Annotated[
        bool, typer.Option("--follow", help="Go on showing it until it ends; --json: an object per change.")
    ] = False,
) -> None:
    """Show a tree from its journal: sessions, approvals, totals. Never writes."""
    if listed and followed:
        raise typer.BadParameter("--list shows all trees, --follow goes on showing one; leave one out")
    if followed:
        _run("follow", path=path, state_dir=state_dir, tree_id=tree_id, as_json=as_json)
    if listed:
        _run("trees", path=path, state_dir=state_dir, as_json=as_json)
    _run("tree", path=path, state_dir=state_dir, tree_id=tree_id, as_json=as_json)


@app.command()
def approvals(  # noqa: PLR0913 - each option is a parameter
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: Annotated[
        str | None, typer.Option("--tree", help="A tree's id [default: all that are open, else the newest].")
    ] = None,
    as_json: AsJson = False,
    approve: Annotated[str | None, typer.Option(help="Say yes to the request of this id.")] = None,
    deny: Annotated[str | None, typer.Option(help="Say no to the request of this id.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; the model reads it with a no.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List every request there ever was, decided ones too.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and ask about requests as they come.")
    ] = False,
) -> None:
    """List the requests that wait for a person; at a terminal you are asked about each.

    Answers go to the live runtime of the workspace; without one the journal is read and nobody is answered.
    """
    _run(
        "approvals",
        path=path,
        state_dir=state_dir,
        tree_id=tree_id,
        as_json=as_json,
        approve=approve,
        deny=deny,
        reason=reason,
        everything=everything,
        watch=watch,
    )


@app.command()
def cancel(
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: OpenTree = None,
    session: Session = "main",
    reason: Annotated[str | None, typer.Option(help="Why; stands in the journal.")] = None,
    as_json: AsJson = False,
) -> None:
    """End a session of a live tree and everything below it, and print how each of them ended."""
    _run(
        "cancel",
        path=path,
        state_dir=state_dir,
        tree_id=tree_id,
        session=session,
        reason=reason,
        as_json=as_json,
    )


@app.command()
def interrupt(
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: OpenTree = None,
    session: Session = "main",
    reason: Annotated[str | None, typer.Option(help="Why; whoever waits for a reply reads it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have a session of a live tree, and everything below it, drop what it does; the session lives on."""
    _run(
        "interrupt",
        path=path,
        state_dir=state_dir,
        tree_id=tree_id,
        session=session,
        reason=reason,
        as_json=as_json,
    )


@app.command()
def chat(
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: OpenTree = None,
    session: Session = "main",
) -> None:
    """Talk to a session of a live tree; requests that wait for a person are asked in between."""
    _run("chat", path=path, state_dir=state_dir, tree_id=tree_id, session=session)


@app.command()
def doctor(path: Workspace = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Check this installation, its kernel and state; show which session each actor embodies.

    Starts nothing but one short confined process. Exit codes: 0 sessions can run, 1 something keeps them from
    it, 2 can't begin.
    """
    _run("doctor", path=path, state_dir=state_dir, as_json=as_json)


@app.command()
def tools(  # noqa: PLR0913 - each option is a parameter
    explain: Annotated[str | None, typer.Option(help="Say what becomes of this one tool, and why.")] = None,
    dialect: Annotated[
        str | None, typer.Option(help="Show each tool's schema as models of this dialect get it.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="The owner's lists, a .json or .toml file.", readable=False)
    ] = None,
    plugins: Annotated[
        Path | None,
        typer.Option(help="What the owner says about plugins, a .json or .toml file.", readable=False),
    ] = None,
    kind: Annotated[str, typer.Option(help="Of a session of this kind: main, branch or worker.")] = "main",
    agent: Annotated[str, typer.Option(help="Of a session of this agent.")] = "default",
    model: Annotated[str, typer.Option(help="Of a session of this model, as provider/model.")] = "",
    group: Annotated[str, typer.Option(help="Of a tree whose channel belongs to this group.")] = "",
    channel: Annotated[bool, typer.Option(help="Of a tree with a channel, or without one.")] = True,
    tainted: Annotated[
        bool, typer.Option("--tainted", help="Of a session that has taken in untrusted text.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List all tools, which of them a session holds, and why it does not hold the others."""
    _run(
        "tools",
        explain=explain,
        dialect=dialect,
        policy=policy,
        plugins=plugins,
        kind=kind,
        agent=agent,
        model=model,
        group=group,
        channel=channel,
        tainted=tainted,
        as_json=as_json,
    )


app.add_typer(memory_app.memory_commands(_run), name="memory")
