"""Options that several commands have, and how the body of a command is run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

BODIES = {
    "survey": "sessiontree.survey.command:survey",
    "run": "sessiontree.cli.run:run",
    "run program": "sessiontree.cli.program_run:run_program",
    "resume": "sessiontree.cli.resume:resume",
    "resume survey": "sessiontree.survey.command:resume",
    "ask": "sessiontree.survey.ask:ask",
    "ask model": "sessiontree.survey.investigation:ask_model",
    "tree": "sessiontree.cli.tree:show",
    "tree page": "sessiontree.cli.tree_page:save",
    "trees": "sessiontree.cli.tree_list:show_list",
    "show": "sessiontree.cli.show:show",
    "serve": "sessiontree.cli.serve:serve",
    "acp": "sessiontree.cli.acp:acp",
    "follow": "sessiontree.cli.follow:follow",
    "approvals": "sessiontree.cli.approvals:approvals",
    "cancel": "sessiontree.cli.cancel:cancel",
    "interrupt": "sessiontree.cli.cancel:interrupt",
    "chat": "sessiontree.cli.chat:chat",
    "fork": "sessiontree.cli.fork:fork",
    "dry fork": "sessiontree.cli.dry_run:show_fork",
    "dry resume": "sessiontree.cli.dry_run:show_resume",
    "replay": "sessiontree.cli.replay:replay",
    "doctor": "sessiontree.cli.doctor:doctor",
    "tools": "sessiontree.cli.tools:tools",
    "models": "sessiontree.cli.models:models",
    "journal export": "sessiontree.cli.journal:export",
    "journal import": "sessiontree.cli.journal:import_",
    "journal prune": "sessiontree.cli.journal:prune",
    "journal erase": "sessiontree.cli.journal:erase",
    "bench run": "sessiontree.bench.run_commands:run",
    "bench list": "sessiontree.bench.run_commands:list_suites",
    "bench prepare": "sessiontree.bench.run_commands:prepare",
    "bench matrix": "sessiontree.bench.matrix.matrix_run:run_matrix_command",
    "bench report": "sessiontree.bench.result_commands:report",
    "bench metrics": "sessiontree.bench.result_commands:show_metrics",
    "bench compare": "sessiontree.bench.result_commands:compare",
    "bench show": "sessiontree.bench.result_commands:show",
    "bench view": "sessiontree.bench.view.view_command:view",
    "bench retry": "sessiontree.bench.mend_commands:retry",
    "bench rescore": "sessiontree.bench.mend_commands:rescore",
    "bench pause": "sessiontree.bench.mend_commands:pause",
    "bench resume": "sessiontree.bench.mend_commands:resume",
    "bench inspect-worker": "sessiontree.bench.inspect_sets.worker_command:inspect_worker",
    "bench set": "sessiontree.bench.mend_commands:set_settings",
    "tokens create": "sessiontree.cli.tokens:create",
    "tokens list": "sessiontree.cli.tokens:show_list",
    "tokens revoke": "sessiontree.cli.tokens:revoke",
    "mcp serve": "sessiontree.cli.mcp_server:serve",
    "mcp list": "sessiontree.cli.mcp_client:show_list",
    "mcp check": "sessiontree.cli.mcp_client:check",
    "mcp accept": "sessiontree.cli.mcp_client:accept",
    "mcp allow": "sessiontree.cli.mcp_client:allow",
    "mcp login": "sessiontree.cli.mcp_client:login",
    "program list": "sessiontree.cli.program:show_list",
    "program check": "sessiontree.cli.program:check",
    "program save": "sessiontree.cli.program:save",
    "cron list": "sessiontree.cli.cron:show_list",
    "cron show": "sessiontree.cli.cron:show",
    "cron runs": "sessiontree.cli.cron:show_runs",
    "cron change": "sessiontree.cli.cron:change",
    "memory search": "sessiontree.cli.memory:search",
    "memory list": "sessiontree.cli.memory:show_list",
    "memory export": "sessiontree.cli.memory:export",
    "memory import": "sessiontree.cli.memory:import_",
    "memory reindex": "sessiontree.cli.memory:reindex",
    "memory forget": "sessiontree.cli.memory:forget",
}
"""The body of each command: a function of a screen and its options that returns the exit code."""

_RUNNER = "sessiontree.cli.screen:run"

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


def run_body(name: str, /, **options: Any) -> NoReturn:
    """Run the body of a command with its options, and exit with its code."""
    raise typer.Exit(load(_RUNNER)(lambda: load(BODIES[name]), options))


def load(target: str) -> Any:
    """Return what ``module:name`` names; it is loaded now, so that help is quick."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
