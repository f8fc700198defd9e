"""Options that several commands have, and the screen of a command."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from sessiontree.interpreter.import_guard import COLLECT_AFTER

RunBody: TypeAlias = Callable[[Callable[..., int]], NoReturn]

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", help="Where the journal is [default: the platform's state folder].", readable=False
    ),
]
View = Annotated[bool, typer.Option("--view", help="Show the tree in a browser, too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Start and write nothing; say what would be done, at what cost.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress: only the answer, questions and errors.")
]
WorkspaceOption = Annotated[
    Path | None, typer.Option(help="The workspace [default: this directory].", readable=False)
]
Workspace = Annotated[
    Path | None, typer.Argument(help="The workspace [default: this directory].", readable=False)
]
Backend = Annotated[str, typer.Option(help="What runs the sessions: ray (actors) or local (this process).")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="The model: a configured name, or provider:model, such as openai:gpt-5 or local:smollm2.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The configuration [default: sessiontree.toml in the platform's configuration folder].",
        readable=False,
    ),
]
MainAgent = Annotated[
    str | None, typer.Option("--agent", help="The agent that Main runs as, from the configuration.")
]
OpenTree = Annotated[
    str | None, typer.Option("--tree", help="An open tree's id [default: the only one that is open].")
]
Session = Annotated[str, typer.Option(help="A session's path, such as main/b1.")]
Uri = Annotated[
    str | None,
    typer.Option(help="Where the memory is, if elsewhere: a directory, or an address such as s3://…"),
]
Ceiling = Annotated[
    str, typer.Option("--tier", help="The highest tier of a call: read-only, workspace, system or elevated.")
]
BudgetOfAll = Annotated[
    float | None, typer.Option("--budget-usd", help="Most US dollars that all its trees together may spend.")
]
TalksTo = Annotated[
    list[str] | None, typer.Option("--agent", help="An agent that it may talk to; may be repeated.")
]
MayHold = Annotated[
    list[str] | None,
    typer.Option("--tool", help="A tool that its trees may hold; may be repeated [default: all]."),
]
MayApprove = Annotated[
    bool, typer.Option("--approve", help="Let it answer the requests and questions of its own trees.")
]
WorksIn = Annotated[
    Path,
    typer.Option("--workspace", help="The directory of its trees.", readable=False),
]


@contextmanager
def open_screen(options: Mapping[str, Any]) -> Iterator[RunBody]:
    """Open the screen of a command, which ends with the exit code of the body that runs there.

    A command imports its body in this context. So help loads no body, and a body that can't be loaded is
    reported like one that fails.

    Args:
        options: The body's options.
    """
    from sessiontree.cli.screen import RichScreen, exit_on_fault

    given = dict(options)  # a debugger may add later names to what locals() returned
    with exit_on_fault():

        def run_body(body: Callable[..., int]) -> NoReturn:
            gc.freeze()  # what was imported stays until the end, so no collection needs to scan it
            gc.set_threshold(*COLLECT_AFTER)
            gc.enable()
            raise typer.Exit(body(RichScreen(sys.stdout), **given))

        yield run_body
