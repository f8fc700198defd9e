"""The commands of ``sessiontree memory`` and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from sessiontree.cli.options import AsJson, StateDir, Uri, WorkspaceOption, open_screen

commands = typer.Typer(
    help="Search, list, export, import or forget what sessions stored in memory.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only records of this type: decision, fact, identity, preference or free."),
]
SourcePath = Annotated[
    str | None, typer.Option("--path", help="Only records of this source path, or of files below it.")
]
OfTree = Annotated[str | None, typer.Option("--tree", help="Only what sessions of this tree stored.")]
_KINDS = "hashing, 'minilm model_dir=…' or 'http url=… model=… dimensions=… api_key_env=…'"
Embedder = Annotated[
    str | None, typer.Option(help=f"What the vectors come from: {_KINDS} [default: hashing].")
]
NewEmbedder = Annotated[str, typer.Option("--embedder", help=f"What they shall come from: {_KINDS}.")]


@commands.command()
def search(  # noqa: PLR0913 - each option is a parameter
    query: Annotated[str, typer.Argument(help="What to search for: words or names.")],
    limit: Annotated[int, typer.Option(help="Most records shown, 1 to 100.")] = 10,
    types: Types = None,
    path: SourcePath = None,
    embedder: Embedder = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show the records that match a query best, best first."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.memory import search

        run_body(search)


@commands.command("list")
def show_list(  # noqa: PLR0913 - each option is a parameter
    limit: Annotated[int, typer.Option(help="Most records shown: the newest.")] = 50,
    types: Types = None,
    path: SourcePath = None,
    tree: OfTree = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest records."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.memory import show_list

        run_body(show_list)


@commands.command()
def export(
    file: Annotated[str, typer.Argument(help="The file to write; - is standard output.")] = "-",
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Write all records as NDJSON; a file is replaced once the export is whole."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.memory import export

        run_body(export)


@commands.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="An export; - is standard input.")],
    embedder: Embedder = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Import an export, whole or not at all; existing records stay."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.memory import import_

        run_body(import_)


@commands.command()
def reindex(
    embedder: NewEmbedder = "hashing",
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Compute the vectors of all records again, with the same embedder or another."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.memory import reindex

        run_body(reindex)


@commands.command()
def forget(  # noqa: PLR0913 - each option is a parameter
    ids: Annotated[list[str] | None, typer.Option("--id", help="Of a record; may be repeated.")] = None,
    path: SourcePath = None,
    tree: OfTree = None,
    yes: Annotated[bool, typer.Option("--yes", help="Forget without asking.")] = False,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Remove the records that match all conditions; you are asked first.

    Exit codes: 0 forgotten, or nothing fits, 1 you said no, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.memory import forget

        run_body(forget)
