"""Outcome: what a survey's last word means: which file stands where, which exit code, what is shown."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from sessiontree.api.session_tree import SessionTree
from sessiontree.survey.finding import Totals
from sessiontree.survey.run import Ending
from sessiontree.survey.screen import Screen
from sessiontree.survey.words import LastWord

WRITTEN, FAILED, KEPT = 0, 1, 3
"""Exit codes: the report is in its place; the survey failed; what stood in its place was kept."""

_LANGUAGES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Places:
    """Where a survey happens."""

    root: Path
    """What is surveyed."""
    state_dir: Path
    """Where the journal lies."""
    out: str
    """Where the report goes, relative to the root."""


async def conclude(tree: SessionTree, ending: Ending, places: Places, screen: Screen) -> int:
    """Put a report that was not written into the state directory, end the tree, show the result.

    Returns:
        The exit code.

    Raises:
        OSError: the report can't be put into the state directory; the tree stays unfinished.
    """
    word = ending.watch.last_word
    if word is None:
        reason = ending.watch.failure or "it ended without a word"
        await tree.cancel(f"the survey failed: {reason}")
        screen.line(f"the survey failed: {reason}")
        return FAILED
    saved = None
    if word.survey != "written":
        saved = _save(places.state_dir / f"SURVEY-{tree.tree_id}.md", word.report)
    await tree.finish(f"report {word.survey}: {word.path}")
    _show(word, ending, screen)
    _tell_memory(word, screen)
    if saved is None:
        screen.line(f"report: {places.root / word.path}")
        code = WRITTEN
    elif word.survey == "kept":
        screen.line(f"{word.path} was left as it is: {word.reason}")
        screen.line(f"report: {saved}")
        code = KEPT
    else:
        screen.line(f"{word.path} can't be written: {word.reason}")
        screen.line(f"report: {saved}")
        code = FAILED
    where = shlex.quote(str(places.state_dir))
    screen.line(f"journal: {places.state_dir}, tree {tree.tree_id}")
    screen.line(f"show it: sessiontree tree --state-dir {where} --tree {tree.tree_id}")
    return code


def _save(path: Path, report: str) -> Path:
    """Write a report in one step, readable by its owner alone."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(report.encode("utf-8", "backslashreplace"))
        file.flush()
        os.fsync(file.fileno())
    return part.replace(path)


def _show(word: LastWord, ending: Ending, screen: Screen) -> None:
    totals = word.totals
    screen.table(("language", "files", "lines", "functions"), _languages(word.languages))
    done = ending.watch.files_done - ending.files_before
    speed = done / ending.elapsed_s if ending.elapsed_s > 0 else 0.0
    header = ("total", "files", "lines", "functions", "TODOs", "problems", "sessions", "seconds", "files/s")
    numbers = (totals.files, totals.lines, totals.functions, word.notes, word.problems, ending.watch.spawned)
    screen.table(header, [("", *numbers, f"{ending.elapsed_s:.1f}", f"{speed:,.0f}")])


def _tell_memory(word: LastWord, screen: Screen) -> None:
    if word.memory_problem:
        screen.line(f"questions can't be answered from this survey: {word.memory_problem}")
    elif word.records:
        left_out = f", {word.records_dropped:,} more were left out" if word.records_dropped else ""
        screen.line(f'memory: {word.records:,} records{left_out}; ask: sessiontree ask "where is …?"')


def _languages(languages: dict[str, Totals]) -> list[tuple[str, int, int, int]]:
    ordered = sorted(languages.items(), key=lambda item: (-item[1].lines, -item[1].files, item[0]))
    rows = [(name, one.files, one.lines, one.functions) for name, one in ordered[:_LANGUAGES_SHOWN]]
    rest = [one for _, one in ordered[_LANGUAGES_SHOWN:]]
    if rest:
        files, lines = sum(one.files for one in rest), sum(one.lines for one in rest)
        rows.append((f"{len(rest)} others", files, lines, sum(one.functions for one in rest)))
    return rows
