"""Questions for a person: asked, climbing, answered once, refused, expired, and never an approval."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    AnswerTooLate,
    ApprovalAnswer,
    CallbackChannel,
    Limits,
    PermissionDenied,
    QuestionAnswer,
    QuestionReply,
    QuestionRequest,
    QueueChannel,
    ScriptedModel,
    SessionStatus,
    Surface,
    TerminalChannel,
    ValidationError,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallDelegated, CallParked, CallResolved
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ClientCallEnded,
    ClientCallOpened,
    DecisionRefused,
)
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of, results, until
from tests.behaviour.question_fixtures import ASKS, COLOUR, ENDLESS, ask, asking_model, waiting
from tests.behaviour.tree_fixtures import Opener

BLUE = {"question": "Which colour?", "chosen": ["blue"], "text": ""}


async def test_answer_of_a_person_is_the_result(open_tree: Opener) -> None:
    """It waits with its options; the answer reaches the model; the journal says by whom and where."""
    model = ScriptedModel({"main": [ask(), "done"]})
    async with open_tree(model, agents=ASKS, limits=ENDLESS) as tree:
        reply = tree.main.send("go")
        (one,) = await waiting(tree)
        assert (one.question.session_id, one.question.asked) == ("main", "main")
        assert [option.label for option in one.question.items[0].options] == ["red", "blue"]
        assert tree.client_calls.pending() == []
        await one.answer("blue", surface="notebook")
        assert await reply == "done"
        (message,) = results(tree, "main")
        assert (json.loads(message.text), message.is_error) == ({"answers": [BLUE]}, False)
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert (ended.how, ended.by, ended.surface) == ("ok", "person", "notebook")
        assert tree.questions.pending() == []
        with pytest.raises(AnswerTooLate, match="already answered"):
            await one.answer("red")


async def test_question_climbs_to_the_nearest_channel(open_tree: Opener) -> None:
    """A Branch below Main asks at Main; a channel that only decides requests leaves it to the one above."""
    seen: list[QuestionRequest] = []

    def told(question: QuestionRequest) -> str:
        seen.append(question)
        return "blue"

    model = ScriptedModel({"main/b1": ["hello"], "*": [ask(), "done"]})
    channel = CallbackChannel(answerer=told)
    async with open_tree(model, agents=ASKS, limits=ENDLESS, channel=channel) as tree:
        parent = await tree.main.spawn("branch", "stay", approver=lambda _: False, stays_open=True)
        for asker in (await parent.spawn("branch", "go"), await tree.main.spawn("branch", "go")):
            assert (await asker.result()).summary == "done"
        assert {(each.session_id, each.asked) for each in seen} == {
            ("main/b1/b1", "main/b1"),
            ("main/b2", "main"),
        }
        ended = await facts_of(tree, ClientCallEnded)
        assert {(each.how, each.surface) for each in ended} == {("ok", "program")}


async def test_session_with_nobody_above_it_hears_so_at_once(open_tree: Opener) -> None:
    """The model goes on; nothing waits."""
    async with open_tree(asking_model(), agents=ASKS, limits=ENDLESS, channel=None) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert message.is_error
        assert "nobody can be asked" in message.text
        assert await facts_of(tree, ClientCallOpened) == []


async def test_question_that_nobody_answers_expires(open_tree: Opener) -> None:
    """The result says so, and an answer after that is refused."""
    limits = Limits(approval_patience_s=None, approval_expiry_s=0.3)
    async with open_tree(asking_model(), agents=ASKS, limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert "nobody answered within" in message.text
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert (ended.how, ended.by, ended.surface) == ("timeout", "", "")


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_question_survives_a_kill_with_its_id(open_tree: Opener) -> None:
    """SIGKILL while it waits; resumed elsewhere it waits under the same id, and is answered once."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.behaviour.question_program"),
        *(open_tree.backend, open_tree.workspace, open_tree.state_dir),
        stdout=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert program.stdout is not None
            tree_id, question_id = (await program.stdout.readline()).decode().split()
    finally:
        program.kill()
    assert await program.wait() == -signal.SIGKILL
    model = ScriptedModel([ask(), "done"])
    async with await open_tree.resume(tree_id, model) as tree, asyncio.timeout(PATIENCE_S):
        (again,) = tree.questions.pending()
        assert again.question.question_id == question_id
        await again.answer("blue")
        with pytest.raises(AnswerTooLate):
            await again.answer("red")
        assert (await tree.session("main/b1").result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert json.loads(message.text) == {"answers": [BLUE]}
        assert len(await facts_of(tree, CallDelegated)) == 1
        assert len([fact for fact in await facts_of(tree, CallResolved) if fact.outcome == "ok"]) == 1


class _Slow(CallbackChannel):
    """A person who looks at the question and does not answer; it is noted when it is withdrawn."""

    def __init__(self) -> None:
        super().__init__(answerer=self.look)
        self.shown, self.withdrawn = asyncio.Event(), asyncio.Event()

    async def look(self, question: QuestionRequest) -> QuestionReply:
        """Look at it for good."""
        self.shown.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.withdrawn.set()
        raise AssertionError


async def test_of_two_surfaces_the_first_answer_wins(open_tree: Opener) -> None:
    """Two answers at once: one is taken, the other is too late; the channel's question is withdrawn."""
    channel = _Slow()
    async with open_tree(asking_model(), agents=ASKS, limits=ENDLESS, channel=channel) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        await channel.shown.wait()
        given: tuple[tuple[str, Surface], ...] = (("blue", "notebook"), ("red", "browser"))
        tasks = [asyncio.ensure_future(one.answer(text, surface=where)) for text, where in given]
        await asyncio.wait(tasks, timeout=PATIENCE_S)
        (failed,) = [each.exception() for each in tasks if each.exception() is not None]
        assert isinstance(failed, AnswerTooLate)
        async with asyncio.timeout(PATIENCE_S):
            await channel.withdrawn.wait()
        assert (await branch.result()).summary == "done"
        won = given[[each.exception() is None for each in tasks].index(True)]
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert ended.surface == won[1]
        (message,) = results(tree, "main/b1")
        assert json.loads(message.text)["answers"][0]["chosen"] == [won[0]]


async def test_whoever_is_not_an_owner_answers_nothing(open_tree: Opener) -> None:
    """It is noted and refused; the question still waits for an owner."""
    channel = QueueChannel(owners=["olga"])
    async with open_tree(asking_model(), agents=ASKS, limits=ENDLESS, channel=channel) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        with pytest.raises(PermissionDenied, match="owns nothing"):
            await one.answer("blue", sender="eve")
        (refused,) = await facts_of(tree, DecisionRefused)
        assert (refused.request_id, refused.by.id, refused.approve) == (
            one.question.question_id,
            "eve",
            False,
        )
        assert len(tree.questions.pending()) == 1
        await one.answer("blue", sender="olga")
        assert (await branch.result()).summary == "done"
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert ended.by == "olga"


TWO = (
    {"question": "Why?", "options": []},
    {**COLOUR, "allow_free_text": False, "multi_select": True},
)


async def test_answer_that_does_not_fit_is_refused_and_the_question_waits(open_tree: Opener) -> None:
    """Too few, an unknown label, nothing, a text where none is taken: each is said, none is journaled."""
    async with open_tree(asking_model(*TWO), agents=ASKS, limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        wrong: list[tuple[tuple[Any, ...], str]] = [
            (("because",), "1 answers to 2 questions"),
            (("because", ["green"]), "'green' is not an option"),
            (("because", []), "is empty; choose an option"),
            (("because", "teal"), "it takes no text"),
            (("  ", ["red"]), "is empty"),
            (("x" * 2_001, ["red"]), "2,001 characters"),
            ((QuestionAnswer(("red",)), ["red"]), "it has no options"),
        ]
        for given, why in wrong:
            with pytest.raises(ValidationError, match=why):
                await one.answer(*given)
        assert len(tree.questions.pending()) == 1
        assert await facts_of(tree, ClientCallEnded) == []
        await one.answer("because", ["red", "blue"])
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert [each["chosen"] for each in json.loads(message.text)["answers"]] == [[], ["red", "blue"]]


async def test_nothing_is_approved_by_an_answer_nor_answered_by_an_approval(open_tree: Opener) -> None:
    """An id of the one is unknown to the other; both still wait."""
    model = ScriptedModel({"main/b1": [[ask(), script_call("launch")], "done"]})
    agents = {"default": AgentSpec(tools=("ask_user", "launch"))}
    async with open_tree(model, agents=agents, tools=TOOLS, limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        (request,) = await asked(tree)
        question_id, request_id = one.question.question_id, request.request.request_id
        desk = tree._open()
        with pytest.raises(AnswerTooLate, match="unknown to this tree"):
            await desk.answer(question_id, ApprovalAnswer(approve=True))
        with pytest.raises(AnswerTooLate, match="unknown to this tree"):
            await desk.answer_question(request_id, QuestionReply((QuestionAnswer(text="yes"),)), "program")
        with pytest.raises(AnswerTooLate, match="unknown to this tree"):
            await tree.client_calls.answer(question_id, {"answers": []})
        assert (len(tree.questions.pending()), len(tree.approvals.pending())) == (1, 1)
        await one.answer("I approve of everything")
        assert len(tree.approvals.pending()) == 1
        await request.deny()
        assert (await branch.result()).summary == "done"
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.surface) == ("denied", "program")


async def test_interrupting_and_cancelling_close_a_question(open_tree: Opener) -> None:
    """It waits no more; an answer is refused; an interrupted session lives on."""
    model = ScriptedModel({"main": ["hello"], "*": [ask(), ask(), "done"]})
    async with open_tree(model, agents=ASKS, limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        await branch.interrupt("stop that")
        assert tree.questions.pending() == []
        with pytest.raises(AnswerTooLate, match="cancelled"):
            await one.answer("blue")
        branch.send("again")
        (two,) = await waiting(tree, 2)
        await branch.cancel()
        with pytest.raises(AnswerTooLate, match="cancelled"):
            await two.answer("blue")
        assert branch.status().status is SessionStatus.CANCELLED


async def test_model_goes_on_and_hears_the_answer_later(open_tree: Opener) -> None:
    """Without patience the pending envelope names the question; the answer comes as a notice."""
    model = ScriptedModel([ask(), "meanwhile", "heard"])
    async with open_tree(model, agents=ASKS, limits=Limits(approval_patience_s=0)) as tree:
        branch = await tree.main.spawn("branch", "go")
        (one,) = await waiting(tree)
        await until(tree, CallParked)
        await one.answer("blue")
        assert (await branch.result()).summary == "heard"
        assert "blue" in branch.history()[-2].to_wire()["content"][0]["text"]


async def test_person_at_a_terminal_answers_by_numbers_and_words(open_tree: Opener) -> None:
    """The questions come one by one; a number that is not an option is asked again; the surface is noted."""
    screen = io.StringIO()
    terminal = TerminalChannel(io.StringIO("why not\n7\n2,1\n"), screen)
    async with open_tree(asking_model(*TWO), agents=ASKS, limits=ENDLESS, channel=terminal) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        first, second = json.loads(message.text)["answers"]
        assert (first["text"], second["chosen"]) == ("why not", ["blue", "red"])
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert ended.surface == "terminal"
        assert "2. blue - like the sea" in screen.getvalue()
