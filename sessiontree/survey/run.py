"""Run: one survey from its start, or from where it was left, to its last word."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sessiontree.api.runtime import Runtime
from sessiontree.api.session_tree import SessionTree
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.tool import Tool
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.survey.bounds import AGENTS, SMART_RULES, limits_for
from sessiontree.survey.consent import Consent
from sessiontree.survey.earlier import FindSurvey
from sessiontree.survey.model import SurveyModel
from sessiontree.survey.plan import FolderPlan
from sessiontree.survey.planning import SurveyPlan, look
from sessiontree.survey.remembering import RememberFiles
from sessiontree.survey.removal import RemoveSurvey
from sessiontree.survey.screen import Screen
from sessiontree.survey.source import printable_path
from sessiontree.survey.tool import SurveyFiles
from sessiontree.survey.watch import SurveyWatch
from sessiontree.survey.words import SurveyOrder
from sessiontree.workspace import WorkspaceReader

SURVEY_THREADS = 1
"""Surveying is nearly all Python: more threads only make each other, and the event loop, wait."""
_PURPOSE = "survey to "


@dataclass(frozen=True, slots=True)
class Ending:
    """How a survey ended."""

    watch: SurveyWatch
    elapsed_s: float
    files_before: int
    """Files an earlier process had done."""


def report_place(out: str) -> str:
    """Return where a report goes, relative to the workspace.

    Raises:
        ConfigError: the name leads outside, or has no UTF-8 form.
    """
    place = PurePosixPath(out)
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise ConfigError(f"--out {out!r} is no place inside the workspace; give a name such as SURVEY.md")
    if printable_path(out) != out:
        raise ConfigError(f"--out {out!r} is no UTF-8")
    return str(place)


def purpose_of(out: str) -> str:
    """Return what listings say a survey's tree is for."""
    return _PURPOSE + out


def out_of(config: TreeConfig) -> str | None:
    """Return where the report of a survey's tree goes, None for any other tree."""
    return config.purpose.removeprefix(_PURPOSE) if config.purpose.startswith(_PURPOSE) else None


async def look_around(reader: WorkspaceReader, out: str) -> list[FolderPlan]:
    """Return what there is to survey now.

    Raises:
        ToolError: the root can't be listed.
    """
    abandoned = threading.Event()
    try:
        return (await asyncio.to_thread(look, reader, abandoned.is_set, frozenset({out})))[1]
    finally:
        abandoned.set()


async def begin(
    root: Path,
    folders: list[FolderPlan],
    out: str,
    consent: Consent,
    channel: HumanChannel,
    runtime: Runtime,
) -> SessionTree:
    """Return a new survey's tree, open.

    Raises:
        ConfigError, JournalError: it can't be opened.
    """
    tree = SessionTree(
        root,
        model=SurveyModel(),
        tools=_tools(),
        limits=limits_for(folders),
        agents=AGENTS,
        approvals=consent.mode,
        smart_rules=SMART_RULES,
        channel=channel,
        runtime=runtime,
        purpose=purpose_of(out),
    )
    return await tree.start()


async def take_up(tree_id: str, channel: HumanChannel, runtime: Runtime) -> SessionTree:
    """Return the tree of an earlier survey, open.

    Raises:
        ConfigError, JournalError: it can't be opened.
    """
    return await SessionTree.resume(
        tree_id, model=SurveyModel(), tools=_tools(), channel=channel, agents=AGENTS, runtime=runtime
    )


def _tools() -> tuple[Tool[Any], ...]:
    return SurveyPlan(), SurveyFiles(), RememberFiles(), FindSurvey(), RemoveSurvey()


async def conduct(tree: SessionTree, root: Path, out: str, screen: Screen, *, known_seq: int = 0) -> Ending:
    """Follow a survey to its last word, saying what happens; the tree stays open.

    Args:
        tree: Its tree, open.
        root: What is surveyed.
        out: Where the report goes.
        screen: Shows the tree, or gets a line for every session that starts or ends.
        known_seq: Number of the last fact an earlier process made; what they tell is not said again.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(SURVEY_THREADS, "survey"))
    async with screen.live(tree.progress) as view:
        watch = SurveyWatch(view)
        started = time.monotonic()
        files_before = 0
        if known_seq:
            async for record in tree.events():
                watch.take(record)
                if record.seq >= known_seq:
                    break
            files_before = watch.files_done
            screen.line(
                f"so far {watch.ended} of {watch.spawned} sessions ended, {files_before:,} files done"
            )
            if view is not None:
                view.pace_from_now()
        async with asyncio.TaskGroup() as group:
            if not watch.is_ordered:
                group.create_task(_give_order(tree, root, out))
            if not watch.is_over:
                await _follow(tree, watch, screen, known_seq, tells_routine=view is None)
        return Ending(watch, time.monotonic() - started, files_before)


async def _give_order(tree: SessionTree, root: Path, out: str) -> None:
    order = SurveyOrder(name=printable_path(root.name) or "/", out=out)
    with contextlib.suppress(SessionTreeError):  # what went wrong stands in the facts too
        await tree.main.send(order.model_dump_json())


async def _follow(
    tree: SessionTree, watch: SurveyWatch, screen: Screen, known_seq: int, *, tells_routine: bool
) -> None:
    async for record in tree.events(after=known_seq):
        told = watch.take(record)
        if told is not None:
            if tells_routine or not told.is_routine:
                screen.line(told.line)
            # facts that are there already come without a pause: let others, and Ctrl-C, have their turn
            await asyncio.sleep(0)
        if watch.is_over:
            return
