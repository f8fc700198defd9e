"""The bodies of ``sessiontree program``: the owner's saved programs listed, checked, and saved from runs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path

from sessiontree import ConfigError, Configuration
from sessiontree.api.agents.front_matter import Malformed
from sessiontree.api.programs.program_check import ProgramFit, check_program
from sessiontree.api.programs.program_files import SUFFIX, load_program, read_programs
from sessiontree.api.programs.program_signature import UnfitProgram
from sessiontree.api.programs.program_text import build_file_text
from sessiontree.api.stored.journaled_trees import StoredFacts
from sessiontree.cli.configured_tree import check_workspace, load_configuration, parse_mode
from sessiontree.cli.screen import FAILED, RichScreen, format_count
from sessiontree.cli.tree import complete_tree_id, find_journal, find_state_dir
from sessiontree.contracts.facts.session_facts import ProgramAdvanced, ProgramStarted
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.programs import SAVED_NAME
from sessiontree.contracts.tools.program_tool import SavedText
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.replay import read_facts


def show_list(screen: RichScreen, *, config: Path | None, as_json: bool) -> int:
    """List the saved programs next to the configuration and return the exit code.

    With ``as_json`` one object: ``folder``, ``programs`` (each ``name``, ``description``, ``parameters``,
    ``tools``, ``agents``, ``budget``, ``timeout_s``, ``path``) and ``refused`` (each ``path``, ``line``,
    ``reason``).

    Args:
        screen: Shows them.
        config: The configuration's file; None = the owner's own.
        as_json: Whether a program reads it.

    Raises:
        ConfigError: the configuration can't be used.
    """
    folder = Configuration.load(config).programs_folder
    found, refused = read_programs(folder)
    if as_json:
        told = {
            "folder": str(folder),
            "programs": [_to_json(each) for each in found.values()],
            "refused": [{**asdict(each), "path": str(each.path)} for each in refused],
        }
        screen.raw(dump_json(told))
        return 0
    if not found and not refused:
        screen.line(f"no program is saved in {folder}")
    if found:
        rows = [(name, ", ".join(each.tools), each.description) for name, each in found.items()]
        screen.table(("program", "tools", "what it does"), rows)
    for file in refused:
        screen.line(f"can't be used: {file}")
    return 0


def _to_json(saved: SavedText) -> dict[str, object]:
    members = {**asdict(saved), "budget": None}
    del members["text"]
    if saved.budget is not None:
        members["budget"] = saved.budget.model_dump(mode="json")
    return members


def check(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    file: Path,
    agent: str,
    kind: str,
    approve: str | None,
    workspace: Path | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Check whether a saved program fits an agent and return the exit code: 1 if it does not.

    With ``as_json`` one object: ``name``, ``agent``, ``kind``, ``fits``, ``tools`` (each ``name``, ``tier``,
    ``approval``, ``why_not``), ``unknown_agents``, ``faults`` and ``offer``; of a file that is not a
    saved program: ``fits`` and ``faults``.

    Raises:
        ConfigError: an option or the configuration can't be used.
    """
    if kind not in set(SessionKind):
        raise ConfigError(f"--kind {kind!r} is not one of {', '.join(SessionKind)}")
    mode = parse_mode(approve)
    root = check_workspace(workspace)
    try:
        saved = load_program(file)
    except Malformed as error:
        if as_json:
            screen.raw(dump_json({"fits": False, "faults": str(error.refused)}))
        else:
            screen.line(str(error.refused))
        return FAILED
    configured = load_configuration(config, root)
    fit = asyncio.run(check_program(saved, configured, agent, SessionKind(kind), root, mode))
    if as_json:
        screen.raw(dump_json({"name": saved.name, "fits": fit.fits, **asdict(fit)}))
    else:
        _show_fit(screen, saved, fit)
    return 0 if fit.fits else FAILED


def _show_fit(screen: RichScreen, saved: SavedText, fit: ProgramFit) -> None:
    if fit.tools:
        rows = [(each.name, each.tier, each.approval or "not held", each.why_not) for each in fit.tools]
        screen.table(("tool", "tier", "its calls", "why not"), rows)
    for name in fit.unknown_agents:
        screen.line(f"no agent is named {name!r}")
    for line in fit.faults.splitlines():
        screen.line(line)
    if fit.offer:
        screen.line(f"not offered yet: {fit.offer}")
    said, needs = "fits" if fit.fits else "does not fit", format_count(len(fit.tools), "tool")
    screen.line(f"{saved.name} {said} a {fit.kind} of agent {fit.agent!r}; it needs {needs}")


def save(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    tree: str,
    call: str,
    name: str,
    session: str,
    description: str | None,
    force: bool,
    workspace: Path | None,
    config: Path | None,
    state_dir: Path | None,
) -> int:
    """Save a program that a session ran and return the exit code.

    Raises:
        ConfigError: the name is not valid or taken, no such program ran, or it can't be saved.
        TreeNotFound, JournalError: the tree can't be read.
    """
    if not SAVED_NAME.fullmatch(name):
        raise ConfigError(f"NAME {name!r} may have 64 lower-case letters, digits and '_', a letter first")
    place = Configuration.load(config).programs_folder / f"{name}{SUFFIX}"
    given = find_state_dir(workspace, state_dir)
    tree_id = complete_tree_id(given, tree)
    started, tools = _find_recorded(find_journal(given, tree_id), tree_id, session, call)
    said = description or f"Saved from call {call} of {session}, tree {tree_id}."
    try:
        text = build_file_text(name, started.call.arguments, started.source, tools, said)
    except UnfitProgram as error:
        raise ConfigError(f"the program of call {call} can't be saved: {error.reason}") from None
    except Malformed as error:
        raise ConfigError(f"the program of call {call} can't be saved: {error.refused.reason}") from None
    _write(place, text, force=force)
    screen.line(f"saved {place}; check it: sessiontree program check {place} --agent NAME")
    return 0


def _find_recorded(
    place: Path, tree_id: str, session: str, call: str
) -> tuple[ProgramStarted, tuple[str, ...]]:
    """Return the fact of a program's beginning, and the names of the tools that it called."""
    found: ProgramStarted | None = None
    keys: list[str] = []
    tools: dict[str, None] = {}
    with StoredFacts(place) as stored:
        for record in stored.read(tree_id):
            if record.session != session:
                continue
            for fact in read_facts(record.text):
                if isinstance(fact, ProgramStarted):
                    keys.append(fact.call.key)
                    found = fact if fact.call.key == call else found
                elif isinstance(fact, ProgramAdvanced) and fact.key == call:
                    tools |= dict.fromkeys(each.tool for each in fact.calls)
    if found is None:
        known = ", ".join(keys[-10:]) or "none"
        raise ConfigError(
            f"call {call!r} of {session} in tree {tree_id} is not a program; programs that it ran: {known}"
        )
    return found, tuple(tools)


def _write(place: Path, text: str, *, force: bool) -> None:
    """Write a file of the owner's; one that exists is replaced as a whole, and only if that was asked for."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}.{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
                file.write(text)
            if force:
                new.replace(place)
            else:
                place.hardlink_to(new)  # fails where the file exists, also if it was made just now
        finally:
            new.unlink(missing_ok=True)
    except FileExistsError:
        raise ConfigError(f"{str(place)!r} exists; choose another name, or replace it by --force") from None
    except OSError as error:
        raise ConfigError(f"{str(place)!r} can't be written: {error.strerror}") from error
