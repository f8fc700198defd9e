"""``%%program``: a cell of a notebook runs as a program of an open tree.

A cell magic can't wait for a tree of its own event loop, so the cell becomes an ``await`` before IPython
reads it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from sessiontree.api.runtime.runtime import OPEN
from sessiontree.api.stored.journaled_trees import StoredFacts
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.session_facts import CallResolved, ProgramAdvanced, ProgramStarted
from sessiontree.contracts.recorded.programs import count_depth
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.notebook.cell_html import render_html_table, render_text_table, shorten
from sessiontree.notebook.displays import RUNNING

MAGIC: Final = "%%program"
RUNNER: Final = "_run_program_cell"
MOST_SHOWN: Final = 50
"""Calls and notes of a program that its cell shows; the newest are left out."""
_HEAD: Final = ("call", "line", "tool", "arguments", "outcome")


class _CellArguments(argparse.ArgumentParser):
    """Reads the words after ``%%program``."""

    def error(self, message: str) -> NoReturn:
        """Raise the error of a cell instead of ending the kernel."""
        raise ConfigError(f"{MAGIC}: {message}; write {MAGIC} [--tree 3f] [--session main/b1] [name=value …]")


def rewrite_as_await(lines: list[str]) -> list[str]:
    """Return the lines of a cell; a cell that begins with ``%%program`` becomes an ``await``."""
    if not lines or lines[0].split()[:1] != [MAGIC]:
        return lines
    words = lines[0].strip().removeprefix(MAGIC)
    return [f"await get_ipython().{RUNNER}({words!r}, {''.join(lines[1:])!r})\n"]


@dataclass(frozen=True, slots=True)
class _CellOrder:
    """Where a cell's program runs, and with what."""

    tree: str
    """The beginning of a tree's id; empty = the only tree that is open."""
    session: str
    inputs: Mapping[str, Any]


def order_in(words: str, variables: Mapping[str, Any]) -> _CellOrder:
    """Return what the words after ``%%program`` ask for.

    A value is a variable of the notebook, else JSON, else text.

    Raises:
        ConfigError: a word makes no sense.
    """
    parser = _CellArguments(prog=MAGIC, add_help=False, allow_abbrev=False)
    parser.add_argument("--tree", default="")
    parser.add_argument("--session", default="main")
    parser.add_argument("inputs", nargs="*")
    try:
        found = parser.parse_args(shlex.split(words))
    except ValueError as error:
        raise ConfigError(f"{MAGIC}: {error}") from None
    inputs = {}
    for word in found.inputs:
        name, sign, value = word.partition("=")
        if not sign or not name.isidentifier():
            parser.error(f"{word!r} is not an input: give name=value")
        inputs[name] = variables[value] if value in variables else _parse_value(value)
    return _CellOrder(found.tree, found.session, inputs)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def find_tree(begins: str) -> tuple[Any, Path]:
    """Return the open tree whose id begins so, as the notebook holds it, and its state directory.

    Raises:
        ConfigError: none is open, or more than one.
    """
    found = [
        (tree, runtime.state_dir)
        for runtime in OPEN
        for tree in runtime.sharing.list_held_trees()
        if tree.tree_id.startswith(begins)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        whose = f" whose id begins with {begins!r}" if begins else ""
        raise ConfigError(f"{MAGIC}: no tree is open here{whose}; open one, or name another by --tree")
    ids = ", ".join(tree.tree_id for tree, _ in found)
    raise ConfigError(f"{MAGIC}: {len(found)} trees are open ({ids}); name one by --tree")


async def run_program_cell(words: str, code: str, variables: Mapping[str, Any]) -> Any:
    """Run a cell as a program, show its calls and return its value.

    Args:
        words: What follows ``%%program``.
        code: The cell's text, or the name of a saved program.
        variables: The notebook's variables.

    Raises:
        ConfigError: a word makes no sense, or it is not clear which tree is meant.
        ToolError: the program failed; its calls are shown before.
    """
    order = order_in(words, variables)
    tree, state_dir = find_tree(order.tree)
    # Read before the program runs, because only its facts are shown, and an earlier one may have the same
    # calls.
    before = read_last_seq(state_dir, tree.tree_id)
    try:
        value = tree.session(order.session).run_program(code.strip(), **order.inputs)
        return await value if inspect.isawaitable(value) else value
    finally:
        RUNNING.publish(render_calls(state_dir, tree.tree_id, order.session, before))


def read_last_seq(state_dir: Path, tree_id: str) -> int:
    """Return the number of a tree's last fact."""
    with StoredFacts(state_dir) as stored:
        return max((record.seq for record in stored.read(tree_id)), default=0)


def render_calls(state_dir: Path, tree_id: str, session: str, after: int) -> dict[str, Any]:
    """Return the calls and notes of the program that a session began after a fact, as HTML and text."""
    begun = ""
    notes: list[str] = []
    rows: dict[str, list[str]] = {}
    with StoredFacts(state_dir) as stored:
        for record in stored.read(tree_id):
            for fact in record.facts if record.seq > after and record.session == session else ():
                if isinstance(fact, ProgramStarted) and not count_depth(fact.call.key):
                    begun = begun or fact.call.key
                elif isinstance(fact, ProgramAdvanced) and _is_within(fact.key, begun):
                    for number, call in enumerate(fact.calls, fact.first):
                        key, line = f"{fact.key}/{number}", str(call.line or "")
                        given = shorten(dump_json(dict(call.arguments)))
                        rows[key] = [key.removeprefix(f"{begun}/"), line, call.tool, given, "open"]
                    shown = [note for note in fact.notes if note.sort != "fan_out"]
                    notes += [f"{note.sort}: {shorten(note.text)}" for note in shown]
                elif isinstance(fact, CallResolved) and fact.key in rows:
                    rows[fact.key][-1] = fact.outcome
    said = [*notes[:MOST_SHOWN], _format_call_count(rows)]
    table: list[Sequence[str]] = [_HEAD, *[*rows.values()][:MOST_SHOWN]]
    if not rows:
        return {"text/plain": "\n".join(said)}
    return {"text/plain": render_text_table(said, table), "text/html": render_html_table(said, table)}


def _is_within(key: str, begun: str) -> bool:
    return bool(begun) and (key == begun or key.startswith(f"{begun}/"))


def _format_call_count(rows: Mapping[str, Sequence[str]]) -> str:
    more = f", the first {MOST_SHOWN} of them" if len(rows) > MOST_SHOWN else ""
    return f"{len(rows):,} call{'' if len(rows) == 1 else 's'}{more}"


def add_program_magic(shell: Any) -> None:
    """Make ``%%program`` known to a shell; once is enough."""

    async def run_cell(words: str, code: str) -> Any:
        return await run_program_cell(words, code, shell.user_ns)

    if not hasattr(shell, RUNNER):
        shell.input_transformers_cleanup.append(rewrite_as_await)
    setattr(shell, RUNNER, run_cell)
