"""The commands of ``sessiontree memory`` and their options. Bodies are loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn, TypeAlias

import typer

from sessiontree.cli.options import AsJson, StateDir

Run: TypeAlias = Callable[..., NoReturn]
"""Runs a body by its name, with its options."""

BODIES = {
    "memory search": "sessiontree.cli.memory_records:search",
    "memory list": "sessiontree.cli.memory_records:show_list",
    "memory export": "sessiontree.cli.memory_export:export",
    "memory import": "sessiontree.cli.memory_export:import_",
    "memory reindex": "sessiontree.cli.memory_reindex:reindex",
    "memory forget": "sessiontree.cli.memory_forget:forget",
}

Workspace = Annotated[
    Path | None, typer.Option(help="The workspace [default: this directory].", readable=False)
]
Uri = Annotated[
    str | None,
    typer.Option(help="Where the memory lies, if elsewhere: a directory, or an address such as s3://…"),
]
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


def memory_commands(run: Run) -> typer.Typer:
    """Return the commands of ``sessiontree memory``."""
    commands = typer.Typer(
        help="Look at what sessions remember, carry it elsewhere, or forget it.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    _add_reading(commands, run)
    _add_writing(commands, run)
    return commands


def _add_reading(commands: typer.Typer, run: Run) -> None:
    """Add what works beside a runtime."""

    @commands.command()
    def search(  # noqa: PLR0913 - each option is a parameter
        query: Annotated[str, typer.Argument(help="What is looked for: plain words, or names.")],
        limit: Annotated[int, typer.Option(help="Most records shown, 1 to 100.")] = 10,
        types: Types = None,
        path: SourcePath = None,
        embedder: Embedder = None,
        workspace: Workspace = None,
        state_dir: StateDir = None,
        uri: Uri = None,
        as_json: AsJson = False,
    ) -> None:
        """Show the records that fit a question best, best first."""
        run(
            "memory search",
            query=query,
            limit=limit,
            types=types or (),
            path=path,
            embedder=embedder,
            workspace=workspace,
            state_dir=state_dir,
            uri=uri,
            as_json=as_json,
        )

    @commands.command("list")
    def show_list(  # noqa: PLR0913 - each option is a parameter
        limit: Annotated[int, typer.Option(help="Most records shown: the newest.")] = 50,
        types: Types = None,
        path: SourcePath = None,
        tree: OfTree = None,
        workspace: Workspace = None,
        state_dir: StateDir = None,
        uri: Uri = None,
        as_json: AsJson = False,
    ) -> None:
        """Show the newest records."""
        run(
            "memory list",
            limit=limit,
            types=types or (),
            path=path,
            tree=tree,
            workspace=workspace,
            state_dir=state_dir,
            uri=uri,
            as_json=as_json,
        )

    @commands.command()
    def export(
        file: Annotated[str, typer.Argument(help="Where to; - is standard output.")] = "-",
        workspace: Workspace = None,
        state_dir: StateDir = None,
        uri: Uri = None,
        as_json: AsJson = False,
    ) -> None:
        """Write all records as NDJSON; a file is replaced once the export is whole."""
        run("memory export", file=file, workspace=workspace, state_dir=state_dir, uri=uri, as_json=as_json)


def _add_writing(commands: typer.Typer, run: Run) -> None:
    """Add what needs the store for itself."""

    @commands.command("import")
    def import_(
        file: Annotated[str, typer.Argument(help="An export; - is standard input.")],
        embedder: Embedder = None,
        workspace: Workspace = None,
        state_dir: StateDir = None,
        uri: Uri = None,
        as_json: AsJson = False,
    ) -> None:
        """Take in an export, all of it or nothing; what is there already stays."""
        run(
            "memory import",
            file=file,
            embedder=embedder,
            workspace=workspace,
            state_dir=state_dir,
            uri=uri,
            as_json=as_json,
        )

    @commands.command()
    def reindex(
        embedder: NewEmbedder = "hashing",
        workspace: Workspace = None,
        state_dir: StateDir = None,
        uri: Uri = None,
        as_json: AsJson = False,
    ) -> None:
        """Make the vectors of all records anew, with another embedder or the same."""
        run(
            "memory reindex",
            embedder=embedder,
            workspace=workspace,
            state_dir=state_dir,
            uri=uri,
            as_json=as_json,
        )

    @commands.command()
    def forget(  # noqa: PLR0913 - each option is a parameter
        ids: Annotated[list[str] | None, typer.Option("--id", help="Of a record; may be repeated.")] = None,
        path: SourcePath = None,
        tree: OfTree = None,
        yes: Annotated[bool, typer.Option("--yes", help="Forget without asking.")] = False,
        workspace: Workspace = None,
        state_dir: StateDir = None,
        uri: Uri = None,
        as_json: AsJson = False,
    ) -> None:
        """Remove the records that fit all conditions; you are asked before.

        Exit codes: 0 forgotten, or nothing fits, 1 you said no, 2 can't begin.
        """
        run(
            "memory forget",
            ids=ids or (),
            path=path,
            tree=tree,
            yes=yes,
            workspace=workspace,
            state_dir=state_dir,
            uri=uri,
            as_json=as_json,
        )
