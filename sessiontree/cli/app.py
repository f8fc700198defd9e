"""The commands and their options.

The body of a command is loaded when the command runs, so that help is quick.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from sessiontree.cli import (
    bench_commands,
    cron_commands,
    journal_commands,
    live_commands,
    mcp_commands,
    memory_commands,
    program_commands,
    token_commands,
)
from sessiontree.cli.options import (
    AsJson,
    Backend,
    ConfigFile,
    DryRunOption,
    MainAgent,
    ModelName,
    Quiet,
    StateDir,
    View,
    Workspace,
    WorkspaceOption,
    open_screen,
)
from sessiontree.version import VERSION

app = typer.Typer(
    name="sessiontree",
    help="Run trees of LLM-agent sessions, and look at what they did.",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; characters that a terminal or pipe can't encode are shown as escapes.

    SIGINT interrupts it however it was started: a shell without job control has its background commands
    ignore the signal, and then nothing but SIGKILL would end a command that follows a tree.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # the parent closed it: the next file opened would take its place
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for good
        elif mode == "w" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


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
    with open_screen(locals()) as run_body:
        from sessiontree.survey.command import survey

        run_body(survey)


@app.command()
def run(  # noqa: PLR0913 - each option is a parameter
    task: Annotated[str | None, typer.Argument(help="What is to be done: the first message to Main.")] = None,
    program: Annotated[
        str | None,
        typer.Option(help="Run this saved program instead of a task; `sessiontree program list` has them."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="An input of the program, name=value; may be repeated."),
    ] = None,
    model: ModelName = None,
    agent: MainAgent = None,
    workspace: WorkspaceOption = None,
    approve: Annotated[
        str | None,
        typer.Option(
            help="Who allows what needs approval: auto, smart, always (you are asked, "
            "also before commands) or never [default: as configured, else always at a terminal, else never]."
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Most US dollars that the tree may spend on models whose price is known."),
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option(
            help="Names of the only tools that sessions may hold, with commas, or none for no tools."
        ),
    ] = None,
    result_schema: Annotated[
        Path | None,
        typer.Option(help="A file of a JSON Schema; the answer is JSON that fits it.", readable=False),
    ] = None,
    attach: Annotated[
        list[Path] | None,
        typer.Option(
            help="A text or an image that goes along with the task; may be repeated.", readable=False
        ),
    ] = None,
    config: ConfigFile = None,
    state_dir: StateDir = None,
    backend: Backend = "ray",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line; the last one is the result.")
    ] = False,
    quiet: Quiet = False,
    view: View = False,
) -> None:
    """Give a task to a tree of sessions, or run a saved program there, show the tree and print the answer.

    The answer is on standard output; progress, questions and errors are on standard error.
    Ctrl-C leaves a tree that `sessiontree resume` continues.

    Exit codes: 0 answered, 1 failed, 2 can't begin, 130 after Ctrl-C.
    """
    options = locals()
    if program is None and not inputs:
        # The two bodies take different arguments, and each refuses what it does not know.
        del options["program"], options["inputs"]
        with open_screen(options) as run_body:
            from sessiontree.cli.run import run

            run_body(run)
    with open_screen(options) as run_body:
        from sessiontree.cli.program_run import run_program

        run_body(run_program)


@app.command()
def resume(  # noqa: PLR0913 - each option is a parameter
    tree_or_path: Annotated[
        str | None,
        typer.Argument(
            metavar="TREE", help="A tree's id, or the beginning of it [default: the newest unfinished tree]."
        ),
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(help="The workspace [default: this directory].", readable=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that answers from now on [default: the tree's].")
    ] = None,
    config: ConfigFile = None,
    state_dir: StateDir = None,
    backend: Backend = "ray",
    quiet: Quiet = False,
    dry_run: DryRunOption = False,
    as_json: AsJson = False,
) -> None:
    """Finish a survey, or a tree of `sessiontree run`, that was interrupted or killed.

    With --dry-run nothing is started: the output says per session what runs again, what the journal serves,
    what waits, and what it costs at most.
    """
    options = locals()
    if options.pop("dry_run"):
        shown = ("tree_or_path", "path", "config", "state_dir", "as_json")
        with open_screen({name: options[name] for name in shown}) as run_body:
            from sessiontree.cli.dry_run import show_resume

            run_body(show_resume)
    if options.pop("as_json"):
        raise typer.BadParameter("--json needs --dry-run")
    with open_screen(options) as run_body:
        from sessiontree.cli.resume import resume

        run_body(resume)


@app.command()
def ask(  # noqa: PLR0913 - each option is a parameter
    question: Annotated[str, typer.Argument(help="The question, or names to look for.")],
    path: Annotated[
        Path, typer.Argument(help="The surveyed directory [default: this one].", readable=False)
    ] = Path(),
    limit: Annotated[
        int | None,
        typer.Option(help="Most places shown or, with --model, read, 1 to 20 [default: 3, with --model 6]."),
    ] = None,
    model: ModelName = None,
    max_cost: Annotated[
        float | None, typer.Option(help="With --model: most US dollars that the answer may cost.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    backend: Annotated[
        str, typer.Option(help="What runs the sessions: local (this process) or ray (actors).")
    ] = "local",
) -> None:
    """Say where in a surveyed directory something is: the best places, and what is there now.

    With --model, a model answers in prose from what Workers read, and each citation is checked.

    Exit codes: 0 found, 1 nothing fits, no citation holds or the model failed, 2 can't begin, such as before
    the first survey, 130 after Ctrl-C.
    """
    options = {"question": question, "path": path, "as_json": as_json, "state_dir": state_dir}
    if model is None:
        if max_cost is not None:
            raise typer.BadParameter("--max-cost bounds what a model costs; name one with --model")
        if config is not None:
            raise typer.BadParameter("--config is for the sessions of a model; name one with --model")
        with open_screen({**options, "limit": 3 if limit is None else limit, "backend": backend}) as run_body:
            from sessiontree.survey.ask import ask

            run_body(ask)
    options |= {"limit": limit, "model": model, "max_cost": max_cost, "backend": backend}
    with open_screen(options) as run_body:
        from sessiontree.cli.configured_tree import check_models, load_configuration
        from sessiontree.cli.screen import RichScreen
        from sessiontree.survey.investigation import ask_model

        run_body(
            partial(
                ask_model,
                configuration=partial(load_configuration, config),
                check_models=check_models,
                progress=lambda: RichScreen(sys.stderr),
            )
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
        bool, typer.Option("--follow", help="Update until it ends; with --json, one object per change.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the tree to this file instead, as a page of its own.")
    ] = None,
) -> None:
    """Show a tree from its journal: sessions, approvals, totals. Never writes to the journal."""
    if listed and followed:
        raise typer.BadParameter("--list shows all trees, --follow goes on showing one; leave one out")
    if html is not None:
        if listed or followed or as_json:
            raise typer.BadParameter("--html writes a page; leave --list, --follow and --json out")
        with open_screen(
            {"path": path, "state_dir": state_dir, "tree_id": tree_id, "html": html}
        ) as run_body:
            from sessiontree.cli.tree_page import save

            run_body(save)
    if followed:
        with open_screen(
            {"path": path, "state_dir": state_dir, "tree_id": tree_id, "as_json": as_json}
        ) as run_body:
            from sessiontree.cli.follow import follow

            run_body(follow)
    if listed:
        with open_screen({"path": path, "state_dir": state_dir, "as_json": as_json}) as run_body:
            from sessiontree.cli.tree_list import show_list

            run_body(show_list)
    with open_screen(
        {"path": path, "state_dir": state_dir, "tree_id": tree_id, "as_json": as_json}
    ) as run_body:
        from sessiontree.cli.tree import show

        run_body(show)


@app.command()
def serve(  # noqa: PLR0913 - each option is a parameter
    path: Workspace = None,
    state_dir: StateDir = None,
    tree_id: Annotated[
        str | None, typer.Option("--tree", help="A tree's id, or the beginning of it [default: the list].")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port [default: one that is free].", min=0, max=65535, show_default=False)
    ] = 0,
    certificate: Annotated[
        Path | None, typer.Option(help="Certificate chain, PEM: needed where other machines reach it.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that lets browsers in, readable by you alone.")
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    jobs: Annotated[
        bool, typer.Option(help="Resume trees that nobody has open when their timed jobs come due.")
    ] = True,
    doors: Annotated[
        bool, typer.Option("--doors", help="Let programs that have a token talk to trees below /v1.")
    ] = False,
    config: ConfigFile = None,
    backend: Backend = "ray",
) -> None:
    """Show trees in a browser: live ones while they grow, past ones from the journal; answer there.

    Only this machine reaches it, unless you name another address with TLS material and a token file.

    Exit codes: 2 can't begin, 130 after Ctrl-C.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.serve import serve

        run_body(serve)


@app.command()
def acp(  # noqa: PLR0913 - each option is a parameter
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--workspace",
            help="A directory that sessions may work in or below [default: any].",
            readable=False,
        ),
    ] = None,
    tier: Annotated[
        str, typer.Option(help="The highest tier of a call: read-only, workspace, system or elevated.")
    ] = "elevated",
    agent: MainAgent = None,
    model: ModelName = None,
    budget_usd: Annotated[
        float | None, typer.Option(help="Most US dollars that all sessions of a workspace may spend.")
    ] = None,
    config: ConfigFile = None,
    state_dir: StateDir = None,
    backend: Backend = "ray",
) -> None:
    """Serve an editor that speaks the Agent Client Protocol, over standard input and output.

    Put this command into the editor's configuration; a session of the editor is a tree.

    Exit codes: 0 the editor has left, 2 can't begin, 130 after Ctrl-C.
    """
    with open_screen({**locals(), "roots": roots or []}) as run_body:
        from sessiontree.cli.acp import acp

        run_body(acp)


@app.command()
def show(
    tree_or_session: Annotated[
        str | None,
        typer.Argument(
            metavar="TREE", help="A tree's id, or the beginning of it [default: the newest tree]."
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="A session's path, such as main/b1 [default: all]."),
    ] = None,
    workspace: WorkspaceOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what was said and done in a tree: messages, replies, calls, results, errors, approvals, children.

    The tree may be live. Exit codes: 0 shown, 1 nothing ran here yet, 2 no such tree or session exists.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.show import show

        run_body(show)


@app.command()
def replay(
    tree_id: Annotated[str, typer.Argument(metavar="TREE", help="A tree's id.")],
    path: Annotated[
        Path | None, typer.Argument(help="The workspace [default: this directory].", readable=False)
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Apply the rules again to what a tree recorded, and compare every fact. Never calls or writes anything.

    A tree of another release is only read. The tree may be open.

    Exit codes: 0 the same, or only read, 1 a difference, or a damaged journal, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.replay import replay

        run_body(replay)


@app.command()
def fork(  # noqa: PLR0913 - each option is a parameter
    tree_id: Annotated[str, typer.Argument(metavar="TREE", help="A tree's id.")],
    path: Annotated[
        Path | None, typer.Argument(help="The workspace [default: this directory].", readable=False)
    ] = None,
    at: Annotated[
        int | None, typer.Option(help="Number of the last fact that both trees share [default: the newest].")
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(help="SESSION=TASK: run this child again with another task. Once for each child."),
    ] = None,
    config: ConfigFile = None,
    state_dir: StateDir = None,
    dry_run: DryRunOption = False,
    as_json: AsJson = False,
) -> None:
    """Make a new tree of the first facts of another one, which does not change; print its id.

    No effect is repeated there: calls that had begun have an unknown result, and requests are made again once
    the new tree is resumed. The other tree may be open.

    With --dry-run nothing is made: the output says what the new tree would do at once.

    Exit codes: 0 made, 2 can't begin.
    """
    options = locals()
    if options.pop("dry_run"):
        with open_screen(options) as run_body:
            from sessiontree.cli.dry_run import show_fork

            run_body(show_fork)
    options.pop("config")
    with open_screen(options) as run_body:
        from sessiontree.cli.fork import fork

        run_body(fork)


for command in (live_commands.approvals, live_commands.cancel, live_commands.interrupt, live_commands.chat):
    app.command()(command)


@app.command()
def doctor(
    path: Workspace = None,
    state_dir: StateDir = None,
    address: Annotated[
        str | None, typer.Option(help="Look at each node of this Ray cluster too: auto, or host:port.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this installation, its kernel and state; show which session each actor embodies.

    Starts nothing but one short confined process, and with --address one short task on each node. A node
    that does not answer within 30 s is named. Exit codes: 0 sessions can run, 1 something keeps them from
    it, 2 can't begin.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.doctor import doctor

        run_body(doctor)


@app.command()
def tools(  # noqa: PLR0913 - each option is a parameter
    explain: Annotated[
        str | None, typer.Option(help="Explain whether a session holds this tool, and why.")
    ] = None,
    dialect: Annotated[
        str | None, typer.Option(help="Show each tool's schema as models of this dialect get it.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="The policy, a .json or .toml file.", readable=False)
    ] = None,
    plugins: Annotated[
        Path | None,
        typer.Option(help="Settings of plugins, a .json or .toml file.", readable=False),
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
    """List all tools, those that a session holds, and why it does not hold the others."""
    with open_screen(locals()) as run_body:
        from sessiontree.cli.tools import tools

        run_body(tools)


@app.command()
def models(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the providers of models, what is installed, which keys are set, and the configured models.

    Never shows a key.
    """
    with open_screen(locals()) as run_body:
        from sessiontree.cli.models import models

        run_body(models)


app.add_typer(bench_commands.commands, name="bench")
app.add_typer(token_commands.commands, name="tokens")
app.add_typer(cron_commands.commands, name="cron")
app.add_typer(journal_commands.commands, name="journal")
app.add_typer(mcp_commands.commands, name="mcp")
app.add_typer(memory_commands.commands, name="memory")
app.add_typer(program_commands.commands, name="program")
