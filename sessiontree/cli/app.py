"""The commands and their options. Each body is loaded when it is asked for, so that help is quick."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sessiontree.version import VERSION

BODIES = {
    "survey": "sessiontree.survey.command:survey",
    "resume": "sessiontree.survey.command:resume",
    "tree": "sessiontree.cli.tree:show",
    "trees": "sessiontree.cli.tree:show_list",
    "follow": "sessiontree.cli.follow:follow",
}
"""What each command does: a function of a screen and its options that returns the exit code."""

_RUNNER = "sessiontree.cli.running:run"

app = typer.Typer(
    name="sessiontree",
    help="Run trees of LLM-agent sessions, and look at what they did.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", help="Where the journal lies [default: the platform's state folder].", readable=False
    ),
]
Backend = Annotated[str, typer.Option(help="What runs the sessions: local.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def main() -> None:
    """Run the command line."""
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
    backend: Backend = "local",
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
    backend: Backend = "local",
) -> None:
    """Finish a survey that was interrupted or killed."""
    _run("resume", tree_or_path=tree, path=path, state_dir=state_dir, backend=backend)


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
