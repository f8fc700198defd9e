"""Ask: what ``sessiontree ask`` does, up to the exit code."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from pathlib import Path

from sessiontree import (
    AgentConfig,
    AgentSpec,
    App,
    ConfigError,
    FunctionModel,
    MemorySettings,
    Runtime,
    SessionTree,
)
from sessiontree.survey.answer import MAX_PLACES, Answer, AnswerPlace, find_answer
from sessiontree.survey.command import BackendName, SurveyScreen
from sessiontree.survey.source.languages import check_installed
from sessiontree.survey.source.question import MAX_QUESTION_CHARS, parse_question

FOUND, NOTHING_FOUND = 0, 1
"""Exit codes: there is an answer; nothing in memory fits well."""
_MODEL = FunctionModel(lambda _: "Ask the program.", name="ask-script")
"""Is never asked: the program makes the one call itself."""
_AGENTS = {"default": AgentSpec(config=AgentConfig(max_result_chars=400_000), tools=("find_answer",))}

_APP = App(model=_MODEL, tools=[find_answer], agents=_AGENTS)


def ask(
    screen: SurveyScreen,
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
        screen: Shows the answer.
        question: What is asked, in plain words or names.
        path: The directory.
        limit: Most places shown, 1 to 20.
        as_json: Whether a program reads it.
        state_dir: Where the survey's state is; None = the directory's own place.
        backend: What runs the session.

    Raises:
        ConfigError: the question is empty or too long, or the directory was never surveyed.
        SessionTreeError: memory can't be used.
    """
    check_installed()
    check_question(question, limit)
    # a tree that is not opened says where the state of its workspace is
    state = SessionTree(path, _APP, state_dir=state_dir).state_dir
    uri = MemorySettings().uri_in(state)
    answer = Answer(surveyed=False)
    if Path(uri).is_dir():
        answer = asyncio.run(_answer(path, uri, question, limit, backend))
    if not answer.surveyed:
        first = f"sessiontree survey {shlex.quote(str(path))}"
        raise ConfigError(f"nothing is remembered of {path.resolve()}; first run: {first}")
    if as_json:
        members = {"question": question, "workspace": str(path.resolve()), **answer.model_dump(mode="json")}
        screen.raw(json.dumps(members, separators=(",", ":")))
    else:
        _show(answer, screen)
    return FOUND if answer.places else NOTHING_FOUND


def check_question(question: str, limit: int) -> None:
    """Raise ConfigError for a question, or a number of places, that is out of bounds."""
    if not question.strip() or len(question) > MAX_QUESTION_CHARS:
        raise ConfigError(
            f"a question has 1 to {MAX_QUESTION_CHARS:,} characters; this one has {len(question.strip()):,}"
        )
    if any("\ud800" <= letter <= "\udfff" for letter in question):
        raise ConfigError("the question holds bytes that are not UTF-8; write it in UTF-8")
    if not parse_question(question).words:
        raise ConfigError(f"the question {question.strip()!r} holds no word to look for; use some")
    if not 1 <= limit <= MAX_PLACES:
        raise ConfigError(f"--limit is {limit}; it must be 1 to {MAX_PLACES}")


async def _answer(path: Path, uri: str, question: str, limit: int, backend: BackendName) -> Answer:
    """Return what a session finds; its tree has a journal of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ask-") as place:
        async with (
            Runtime(place, backend=backend, memory=MemorySettings(uri=uri)) as runtime,
            SessionTree(
                path, _APP, channel=None, runtime=runtime, purpose="question about the workspace"
            ) as tree,
        ):
            reply = await tree.main.call("find_answer", {"question": question, "limit": limit})
            answer = Answer.model_validate(reply.output)
            # a finished tree would be remembered, a cancelled one is not
            await tree.cancel("answered")
            return answer


def _show(answer: Answer, screen: SurveyScreen) -> None:
    for one in answer.places:
        show_place(one, screen)
    if not answer.places:
        screen.line("nothing that is remembered answers this; ask with other words, or with a name")
    if answer.gone or any(one.changed for one in answer.places):
        screen.line("files have changed since the survey; run it again for answers that know all of them")


def show_place(place: AnswerPlace, screen: SurveyScreen) -> None:
    """Show where a place is, what it is, and lines of it."""
    what = place.kind if place.kind == "file" else f"{place.kind} {place.name}"
    screen.line(f"{place.source}  {what}{'  (changed since the survey)' if place.changed else ''}")
    if place.summary:
        screen.line(f"    {place.summary}")
    before = place.first - 1
    for number, text in place.excerpt:
        if number != before + 1:
            screen.line("         …")
        screen.line(f"  {number:>6} | {text.expandtabs(4)}".rstrip())
        before = number
    if before < place.last:
        screen.line(f"         … {place.last - before:,} more lines")
    screen.line("")
