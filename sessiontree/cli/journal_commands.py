"""The commands of ``sessiontree journal`` and their options."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sessiontree.cli.options import AsJson, StateDir, Uri, WorkspaceOption, open_screen

commands = typer.Typer(
    help="Export trees from the journal, import them, or erase them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Yes = Annotated[bool, typer.Option("--yes", help="Erase without asking.")]


@commands.command()
def export(
    file: Annotated[str, typer.Argument(help="The file to write; - is standard output.")] = "-",
    tree_id: Annotated[
        str | None, typer.Option("--tree", help="The id of a tree [default: the newest].")
    ] = None,
    file_format: Annotated[
        Literal["ndjson", "atif"],
        typer.Option(
            "--format",
            help="ndjson: the facts, which import reads; atif: a trajectory with subagents (ATIF 1.8).",
        ),
    ] = "ndjson",
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a tree to a file, which is replaced once the export is whole. The tree may be live.

    Exit codes: 0 written, 1 only the good beginning of a damaged tree was written, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.journal import export

        run_body(export)


@commands.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="An export; - is standard input.")],
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Accept the export of a damaged tree: its good beginning.")
    ] = False,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write an exported tree into the journal, whole or not at all; a program can then resume it.

    The tree keeps its configuration: workspace, limits, rights and rules. Import files you trust.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.journal import import_

        run_body(import_)


@commands.command()
def prune(  # noqa: PLR0913 - each option is a parameter
    older_than: Annotated[
        float | None, typer.Option(help="Only trees not written for this many days.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(help="Keep this many of the most recently written trees.")
    ] = None,
    max_size: Annotated[
        float | None,
        typer.Option(help="Only the least recently written trees, until the facts left take so many MB."),
    ] = None,
    ended_only: Annotated[
        bool,
        typer.Option("--ended-only", help="Spare trees that were left open and could be resumed."),
    ] = False,
    yes: Yes = False,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Erase old trees, ended or left open; you are asked first. What they stored in memory stays.

    A journal that a program writes now is left alone, with all its trees.

    Exit codes: 0 erased, or no tree qualifies, 1 you said no, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.journal import prune

        run_body(prune)


@commands.command()
def erase(
    tree_id: Annotated[str, typer.Argument(metavar="TREE", help="The id of a tree.")],
    keep_memory: Annotated[
        bool, typer.Option("--keep-memory", help="Leave what its sessions stored in memory.")
    ] = False,
    yes: Yes = False,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Erase a tree and what its sessions stored in memory; you are asked first.

    A tree whose journal a program writes now is refused.

    Exit codes: 0 erased, 1 you said no, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.journal import erase

        run_body(erase)
