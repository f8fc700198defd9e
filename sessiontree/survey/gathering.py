"""Gathering: how Main and Branches share work out, wait for their children, and join what comes back.

One page of the plan at a time: all its children are spawned in one reply, the session rests, and the next
page follows when every one of them has answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.messages import ToolCall
from sessiontree.models.answers import call
from sessiontree.survey.conversation import ScriptedConversation, ScriptStep
from sessiontree.survey.finding import GroupFindings, Problem, Totals
from sessiontree.survey.joining import merge
from sessiontree.survey.planning import FolderPage, GroupPage
from sessiontree.survey.remembering import Remembered, RememberFilesParams
from sessiontree.survey.words import FINDINGS_SCHEMA, ChildWord, FolderOrder, GroupOrder

PLAN = "survey_plan"
SPAWN = "sessions_spawn"
REMEMBER = "remember_files"
NOTHING_YET = "{}"
"""What a Branch says while it waits. It owes findings, so each of its replies without calls must be some;
the tree takes this one back as soon as a child answers."""
_LABEL_CHARS = 80

Reply: TypeAlias = "str | list[str | ToolCall]"


@dataclass(frozen=True, slots=True)
class Gathered:
    """What all children found, and what could not be surveyed at all."""

    findings: GroupFindings
    ignored: int


@dataclass(frozen=True, slots=True)
class Order:
    """Work for one child."""

    kind: str
    order: FolderOrder | GroupOrder
    folder: str
    files: int
    meanwhile: tuple[ToolCall, ...] = ()
    """What its parent does while the child works."""

    @property
    def first(self) -> str:
        """Its first path, or its folder."""
        return self.order.paths[0] if isinstance(self.order, GroupOrder) else self.folder

    def spawn(self, number: int) -> ToolCall:
        """Return the call that starts the child; the number makes its label its own."""
        first = self.first
        shown = first if len(first) <= _LABEL_CHARS else f"{first[: _LABEL_CHARS - 1]}…"
        return call(
            SPAWN,
            kind=self.kind,
            task=self.order.model_dump_json(),
            label=f"{number} {shown} ({count_of(self.files)})",
            result_schema=FINDINGS_SCHEMA,
        )

    def lost(self, reason: str) -> GroupFindings:
        """Return the findings of files nobody could survey: counted, and one problem for all of them."""
        return GroupFindings(
            files=self.files,
            unread=self.files,
            folders={self.folder: Totals(files=self.files)},
            problems=(Problem(path=self.first, text=f"{count_of(self.files)} not surveyed: {reason}"),),
        )


Orders: TypeAlias = Callable[[str], list[Order]]
"""From the text of a plan's page to the work on it, in its order."""


def count_of(files: int) -> str:
    """Return a number of files in words."""
    return f"{files:,} {'file' if files == 1 else 'files'}"


def gather_folders(talk: ScriptedConversation, leave_out: tuple[str, ...]) -> Reply | Gathered:
    """Return Main's next reply, or everything once all Branches have answered.

    Raises:
        ModelError: the plan failed, and without it nothing can be done.
    """

    def orders(text: str) -> list[Order]:
        page = FolderPage.model_validate_json(text)
        return [
            Order(
                "branch",
                FolderOrder(
                    folder=one.folder,
                    leave_out=leave_out,
                    roots=page.roots,
                    window=page.window,
                ),
                one.folder,
                one.files,
                (
                    call(
                        REMEMBER,
                        folder=one.folder,
                        leave_out=list(leave_out),
                        records_per_file=page.records_per_file,
                    ),
                ),
            )
            for one in page.folders
        ]

    reply = _next(talk, {"leave_out": list(leave_out)}, orders, "Waiting for the branches.")
    if reply is not None:
        return reply
    first = FolderPage.model_validate_json(talk.named(PLAN)[0].result.text)
    unseen = GroupFindings(problems=first.problems, problems_dropped=first.problems_dropped)
    seen = merge(_joined(talk, orders), unseen)
    return Gathered(merge(seen, remembered(talk)), first.ignored)


def gather_groups(talk: ScriptedConversation, order: FolderOrder) -> Reply | Gathered:
    """Return a Branch's next reply, or everything once all Workers have answered.

    Raises:
        ModelError: as :func:`gather_folders`.
    """

    def orders(text: str) -> list[Order]:
        return [
            Order(
                "worker",
                GroupOrder(paths=group, roots=order.roots, window=order.window),
                order.folder,
                len(group),
            )
            for group in GroupPage.model_validate_json(text).groups
        ]

    reply = _next(talk, {"folder": order.folder, "leave_out": list(order.leave_out)}, orders, NOTHING_YET)
    return reply if reply is not None else Gathered(_joined(talk, orders), 0)


def remembered(talk: ScriptedConversation) -> GroupFindings:
    """Return how much a session has put into memory itself, and what could not be."""
    done = [step for step in talk.named(REMEMBER) if not step.result.is_error]
    amounts = [Remembered.model_validate_json(step.result.text) for step in done]
    # a session without memory has nothing to say about it
    failed = [step for step in talk.named(REMEMBER) if step.result.is_error and not step.is_denied]
    return GroupFindings(
        records=sum(one.records for one in amounts),
        records_dropped=sum(one.dropped for one in amounts),
        problems=tuple(sorted(map(_not_remembered, failed), key=lambda problem: problem.path)),
    )


def _not_remembered(step: ScriptStep) -> Problem:
    folder = RememberFilesParams.model_validate(step.call.arguments).folder
    return Problem(path=folder, text=f"its files are not all in memory: {step.reason}")


def _next(
    talk: ScriptedConversation, arguments: Mapping[str, JsonValue], orders: Orders, waiting: str
) -> Reply | None:
    """Return what is to be said before everything is there, None when it is."""
    plans = talk.named(PLAN)
    if not plans:
        return [call(PLAN, **arguments)]
    if plans[-1].result.is_error:
        raise ModelError(f"there is no plan: {plans[-1].reason}")
    asked = talk.named(SPAWN)
    page = plans[-1].result.text
    if not talk.since(PLAN) and (fresh := orders(page)):
        spawning = [order.spawn(number) for number, order in enumerate(fresh, start=len(asked) + 1)]
        return [*spawning, *(each for order in fresh for each in order.meanwhile)]
    if sum(not step.result.is_error for step in asked) > len(talk.told):
        return waiting
    after = json.loads(page)["next"]
    return None if after is None else [call(PLAN, after=after, **arguments)]


def _joined(talk: ScriptedConversation, orders: Orders) -> GroupFindings:
    """Return what all children found; of one that failed, that its files were not read."""
    told = {word.session: word for word in map(ChildWord.model_validate_json, talk.told)}
    asked = [order for step in talk.named(PLAN) for order in orders(step.result.text)]
    steps = talk.named(SPAWN)
    return merged(_found(step, told, order) for step, order in zip(steps, asked, strict=True))


def _found(step: ScriptStep, told: Mapping[str, ChildWord], order: Order) -> GroupFindings:
    if step.result.is_error:
        return order.lost(f"no session was started: {step.reason}")
    session = json.loads(step.result.text)["session_id"]
    word = told.get(session)
    if word is None:
        return order.lost(f"session {session} never answered")
    if word.status == SessionStatus.COMPLETED and word.output is not None:
        return word.output
    return order.lost(f"session {session} {word.status}: {word.summary}")


def merged(parts: Iterable[GroupFindings]) -> GroupFindings:
    """Return what many groups hold together, merging neighbours so that no part is copied often."""
    level = list(parts)
    while len(level) > 1:
        pairs = [merge(level[index], level[index + 1]) for index in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0] if level else GroupFindings()
