"""Ask: what ``sessiontree ask`` does, up to the exit code."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Protocol

from sessiontree.api.paths import absolute_path, default_state_dir, workspace_root
from sessiontree.api.runtime import BackendName, Runtime
from sessiontree.api.session_tree import SessionTree
from sessiontree.contracts.agent import AgentConfig, AgentSpec
from sessiontree.contracts.errors import ConfigError, SessionFailed
from sessiontree.contracts.jsonable import dump_json
from sessiontree.survey.answer import MAX_PLACES, Answer, AnswerPlace, AskOrder, answer_of
from sessiontree.survey.asking import QuestionModel
from sessiontree.survey.bounds import MAX_RESULT_CHARS
from sessiontree.survey.earlier import FindSurvey
from sessiontree.survey.places import CheckPlaces
from sessiontree.survey.question import MAX_QUESTION_CHARS, queries_of, question_of

FOUND, NOTHING_FOUND = 0, 1
"""Exit codes: there is an answer; nothing in memory fits."""

_AGENTS = {
    "default": AgentSpec(
        config=AgentConfig(
            prompt="You answer a question about a workspace from what surveys of it left in memory.",
            max_result_chars=MAX_RESULT_CHARS,
        ),
        tools=("memory_search", "read", "find_survey", "check_places"),
    )
}


class Sheet(Protocol):
    """Takes lines for people, and text for programs."""

    def line(self, text: str) -> None:
        """Show one line; what is invisible in it is made visible."""
        ...

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it stands."""
        ...


def ask(
    sheet: Sheet,
    *,
    question: str,
    path: Path,
    limit: int,
    as_json: bool,
    state_dir: Path | None,
    backend: BackendName,
) -> int:
    """Answer a question about a surveyed directory and return the exit code.

    Args:
        sheet: Shows the answer.
        question: What is asked, in plain words or names.
        path: The directory.
        limit: Most places shown, 1 to 20.
        as_json: Whether a program reads it.
        state_dir: Where the survey's state lies; None = the directory's own place.
        backend: What runs the session.

    Raises:
        ConfigError: the question is empty or too long, or the directory was never surveyed.
        SessionTreeError: the state can't be used, or another program holds it.
    """
    root = workspace_root(path)
    state = default_state_dir(root) if state_dir is None else absolute_path(state_dir, "--state-dir")
    _check_question(question)
    if not 1 <= limit <= MAX_PLACES:
        raise ConfigError(f"--limit is {limit}; it must be 1 to {MAX_PLACES}")
    never = f"nothing is remembered of {root}; first run: sessiontree survey {shlex.quote(str(path))}"
    if not state.is_dir():
        raise ConfigError(never)
    answer = asyncio.run(_answer(root, state, AskOrder(question=question, limit=limit), backend))
    if not answer.surveyed and not answer.places:
        raise ConfigError(never)
    if as_json:
        sheet.raw(dump_json({"question": question, "workspace": str(root), **_members(answer)}))
    else:
        _show(answer, sheet)
    return FOUND if answer.places else NOTHING_FOUND


def _check_question(question: str) -> None:
    if not question.strip() or len(question) > MAX_QUESTION_CHARS:
        raise ConfigError(
            f"a question has 1 to {MAX_QUESTION_CHARS:,} characters; this one has {len(question.strip()):,}"
        )
    if any("\ud800" <= letter <= "\udfff" for letter in question):
        raise ConfigError("the question holds bytes that are no UTF-8; write it in UTF-8")
    if not any(queries_of(question_of(question))):
        raise ConfigError(
            f"the question {question.strip()!r} holds no word and no name to look for; use some"
        )


async def _answer(root: Path, state: Path, order: AskOrder, backend: BackendName) -> Answer:
    async with (
        Runtime(state, backend=backend) as runtime,
        SessionTree(
            root,
            model=QuestionModel(),
            tools=(FindSurvey(), CheckPlaces()),
            agents=_AGENTS,
            channel=None,
            runtime=runtime,
            purpose="question about the workspace",
        ) as tree,
    ):
        said = await tree.main.send(order.model_dump_json())
        answer = answer_of(said)
        if answer is None:
            raise SessionFailed("main", "it ended without an answer")
        await tree.finish(f"{len(answer.places)} places")
        return answer


def _members(answer: Answer) -> dict[str, object]:
    places = [{"source": one.citation, **one.model_dump(mode="json")} for one in answer.places]
    return {"places": places, "gone": answer.gone}


def _show(answer: Answer, sheet: Sheet) -> None:
    for one in answer.places:
        _show_place(one, sheet)
    if not answer.places:
        sheet.line("nothing that is remembered fits; ask with other words, or with a name")
    if answer.gone or any(one.changed for one in answer.places):
        sheet.line("files have changed since the survey; run it again for answers that know all of them")


def _show_place(place: AnswerPlace, sheet: Sheet) -> None:
    what = place.kind if place.kind == "file" else f"{place.kind} {place.name}"
    sheet.line(f"{place.citation}  {what}{'  (changed since the survey)' if place.changed else ''}")
    if place.summary:
        sheet.line(f"    {place.summary}")
    for number, line in enumerate(place.excerpt, start=place.first):
        sheet.line(f"  {number:>6} | {line.expandtabs(4)}".rstrip())
    sheet.line("")
