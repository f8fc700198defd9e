"""An Elevated call asks upward until somebody entitled answers; nobody else is held up meanwhile."""

from __future__ import annotations

import asyncio
import io

import pytest

from sessiontree import (
    AnswerTooLate,
    ApprovalAnswer,
    ApprovalRequest,
    CallbackChannel,
    Limits,
    PermissionDenied,
    Rule,
    ScriptedModel,
    SessionStatus,
    TerminalChannel,
    script_call,
)
from sessiontree.contracts.facts.session_facts import ApprovalWanted, CallHeld, CallResolved
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ApprovalRequested, ApprovalStepRecorded
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of, results, until
from tests.behaviour.tree_fixtures import Opener

BRANCH = script_call("sessions_spawn", kind="branch", task="go on")
DEEP = "main/b1/b1/b1"


def deep_model(text: str = "moon") -> ScriptedModel:
    """A chain of Branches; the one at depth 3 makes the call."""
    return ScriptedModel(
        {
            "main": [BRANCH, "well"],
            "main/b1": [BRANCH, "well"],
            "main/b1/b1": [BRANCH, "well"],
            DEEP: [script_call("launch", text=text), "done"],
        }
    )


@pytest.mark.covers("C5", "APP2")
@pytest.mark.on_ray
async def test_request_from_depth_3_reaches_mains_queue_and_runs_once_when_approved(
    open_tree: Opener,
) -> None:
    """A person at Main is asked for a call three levels below, with its full arguments."""
    async with open_tree(deep_model(), tools=TOOLS) as tree:
        await tree.main.send("go")
        (pending,) = await asked(tree)
        request = pending.request
        assert (request.session_id, request.asked, request.tool, request.tier) == (
            DEEP,
            "main",
            "launch",
            "Elevated",
        )
        assert request.arguments == {"text": "moon"}
        assert effects(open_tree.workspace) == []
        assert tree.session(DEEP).status().pending_approvals == 1
        await pending.approve(reason="go ahead")
        result = await tree.session("main/b1").result()
        assert result.status is SessionStatus.COMPLETED
        assert [text for _, text in effects(open_tree.workspace)] == ["moon"]
        hops = [(fact.session, fact.answer, fact.by) for fact in await facts_of(tree, ApprovalStepRecorded)]
        assert hops == [
            ("main/b1/b1", "escalate", "rule"),
            ("main/b1", "escalate", "rule"),
            ("main", "approve", "person"),
        ]
        with pytest.raises(AnswerTooLate):
            await pending.deny()
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.covers("A15")
@pytest.mark.on_ray
async def test_callback_at_main_answers_for_depth_3(open_tree: Opener) -> None:
    """A channel made of a function is asked as a person is."""
    seen: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        seen.append(request)
        return True

    async with open_tree(deep_model(), tools=TOOLS, channel=CallbackChannel(approve)) as tree:
        await tree.main.send("go")
        await tree.session("main/b1").result()
        assert [request.session_id for request in seen] == [DEEP]
        assert len(effects(open_tree.workspace)) == 1


async def test_terminal_shows_the_request_and_its_key_answers(open_tree: Opener) -> None:
    """At the terminal the arguments are shown whole, with nothing that could deceive the eye."""
    screen = io.StringIO()
    channel = TerminalChannel(io.StringIO("maybe\ny\n"), screen)
    async with open_tree(deep_model("a\u202eb"), tools=TOOLS, channel=channel) as tree:
        await tree.main.send("go")
        await tree.session("main/b1").result()
        shown = screen.getvalue()
        assert f"\n\n{DEEP} wants to call launch (Elevated)" in shown, "the question begins a line"
        assert '{"text":"a\\u{202e}b"}' in shown
        assert shown.count("allow?") == 2
        assert len(effects(open_tree.workspace)) == 1


async def test_end_of_the_terminals_input_denies(open_tree: Opener) -> None:
    """Nobody at the keyboard means no."""
    channel = TerminalChannel(io.StringIO(""), io.StringIO())
    async with open_tree(deep_model(), tools=TOOLS, channel=channel) as tree:
        await tree.main.send("go")
        await tree.session("main/b1").result()
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.by) == ("denied", "person")
        assert effects(open_tree.workspace) == []


async def test_denial_reaches_the_model_and_binds_the_same_call(open_tree: Opener) -> None:
    """A human's no is a PermissionDenied for the model, and stays no for the same arguments on that path."""
    script: list[Answer] = [
        script_call("launch", text="moon"),
        script_call("launch", text="moon"),
        script_call("launch", text="mars"),
        "done",
    ]
    model = ScriptedModel({"main/b1": script, "*": ["well"]})
    async with open_tree(model, tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (first,) = await asked(tree)
        await first.deny("not today")
        (second,) = await asked(tree, 2)
        assert second.request.arguments == {"text": "mars"}
        await second.approve()
        await branch.result()
        denied, bound, ran = results(tree, "main/b1")
        for message in (denied, bound):
            assert message.details == {"code": "permission_denied", "status": 403, "tier": "Elevated"}
        assert "not today" in denied.text
        assert ran.text == "appended mars"
        with pytest.raises(PermissionDenied, match="said no"):
            await tree.main.call("launch", {"text": "moon"})
        decisions = [(fact.decision, fact.by) for fact in await facts_of(tree, ApprovalDecided)]
        assert decisions == [
            ("denied", "person"),
            ("denied", "denial"),
            ("approved", "person"),
            ("denied", "denial"),
        ]
        assert [text for _, text in effects(open_tree.workspace)] == ["mars"]


@pytest.mark.covers("A16")
async def test_without_any_channel_the_call_is_denied_at_once(open_tree: Opener) -> None:
    """Nobody can be asked: no request stays pending, the model learns it in the same turn."""
    async with open_tree(deep_model(), tools=TOOLS, channel=None) as tree:
        await tree.main.send("go")
        await tree.session("main/b1").result()
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.by) == ("denied", "nobody")
        assert tree.approvals.pending() == []
        assert results(tree, DEEP)[0].details == {
            "code": "permission_denied",
            "status": 403,
            "tier": "Elevated",
        }
        with pytest.raises(PermissionDenied, match="nobody above"):
            await tree.main.call("launch")
        assert effects(open_tree.workspace) == []


@pytest.mark.covers("A10", "A14", "REL-S20")
async def test_siblings_and_the_turns_other_calls_go_on_meanwhile(open_tree: Opener) -> None:
    """While a person thinks, the reply's other calls run and a sibling works to its end."""
    reply: Answer = [
        script_call("launch", text="moon"),
        script_call("append", text="step"),
        script_call("look", text="sky"),
    ]
    model = ScriptedModel(
        {"main/b1": [reply, "done"], "main/b2": [script_call("append", text="side"), "finished"]}
    )
    async with open_tree(model, tools=TOOLS) as tree:
        first = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        second = await tree.main.spawn("branch", "go too")
        assert (await second.result()).summary == "finished"
        await until(tree, CallResolved, count=2, session="main/b1")
        assert sorted(text for _, text in effects(open_tree.workspace)) == ["side", "step"]
        assert results(tree, "main/b1") == []
        assert (await first.call("look", {"text": "stars"})).output == "looked at stars"
        assert tree.approvals.pending() == [pending]
        await pending.approve()
        assert (await first.result()).summary == "done"
        texts = [message.text for message in results(tree, "main/b1")]
        assert texts == ["appended moon", "appended step", "looked at sky"]


@pytest.mark.covers("APP14")
async def test_unanswered_request_expires_and_counts_as_denied(open_tree: Opener) -> None:
    """Time says no, and says why."""
    model = ScriptedModel([script_call("launch"), "done"])
    limits = Limits(approval_expiry_s=0.05, approval_patience_s=None)
    async with open_tree(model, tools=TOOLS, limits=limits) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.by) == ("expired", "time")
        (message,) = results(tree, "main/b1")
        assert "launch was expired by time: nobody answered within 0.05 s" in message.text
        assert tree.approvals.pending() == []
        assert effects(open_tree.workspace) == []


async def test_cancelling_the_session_withdraws_its_request(open_tree: Opener) -> None:
    """A cancelled session's request is closed; an answer that comes later is refused and changes nothing."""
    shown, withdrawn = asyncio.Event(), asyncio.Event()

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        shown.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            withdrawn.set()
        return ApprovalAnswer(True)

    model = ScriptedModel([script_call("launch"), "done"])
    async with open_tree(model, tools=TOOLS, channel=CallbackChannel(ask)) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        async with asyncio.timeout(PATIENCE_S):
            await shown.wait()
        receipt = await branch.cancel("enough")
        assert [(line.session_id, line.status, line.forced) for line in receipt] == [
            ("main/b1", SessionStatus.CANCELLED, False)
        ]
        with pytest.raises(AnswerTooLate):
            await pending.approve()
        async with asyncio.timeout(PATIENCE_S):
            await withdrawn.wait()
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.by) == ("cancelled", "stop")
        assert effects(open_tree.workspace) == []


async def test_call_the_program_asks_for_climbs_as_any_other(open_tree: Opener) -> None:
    """``handle.call`` of an Elevated tool in a Branch waits for the person at Main."""
    model = ScriptedModel({"main/b1": [script_call("launch", text="own"), "done"]})
    rules = [Rule(tool="launch", where={"/text": "own"}, answer="escalate")]
    async with open_tree(model, tools=TOOLS, approver=rules) as tree:
        branch = await tree.main.spawn("branch", "go")
        (own,) = await asked(tree)
        calling = asyncio.create_task(branch.call("launch", {"text": "asked"}))
        await until(tree, CallHeld, where=lambda fact: fact.held)
        await own.deny()
        (other,) = await asked(tree, 2)
        assert (other.request.session_id, other.request.arguments) == ("main/b1", {"text": "asked"})
        await other.approve()
        assert (await calling).output == "appended asked"
        await branch.result()
        assert len(await facts_of(tree, ApprovalWanted, "main/b1")) == 2
        assert len(await facts_of(tree, ApprovalRequested)) == 2
        assert [text for _, text in effects(open_tree.workspace)] == ["asked"]
