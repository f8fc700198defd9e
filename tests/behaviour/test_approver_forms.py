"""Who may answer for a person: rules, functions by name, callables in the program, and the tree's mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessiontree import (
    ApprovalAnswer,
    ApprovalRequest,
    ConfigError,
    Rule,
    ScriptedModel,
    SessionTree,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalStepRecorded,
    ApprovalWaiting,
    DigestDenied,
    ToolAlwaysAllowed,
)
from sessiontree.models.answers import Answer
from tests.behaviour.bad_tool_fakes import junk
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of, results, until
from tests.behaviour.tree_fixtures import Opener

BY_ERROR = "approver error"
HERE = "tests.behaviour.approver_fakes"
SPAWN = script_call("sessions_spawn", kind="branch", task="go on")
BELOW = "main/b1/b1"


def below(*texts: str) -> ScriptedModel:
    """A Branch under the program's Branch makes one call per text."""
    script: list[Answer] = [*(script_call("launch", text=text) for text in texts), "done"]
    return ScriptedModel({"main/b1": [SPAWN, "well"], BELOW: script})


RULES = [
    Rule(tool="lau*", where={"/text": "safe"}, answer="approve"),
    Rule(tool="launch", where={"/text": "never"}, answer="deny"),
    Rule(tool="*", where={"/text": "third"}, answer="approve"),
]


@pytest.mark.parametrize(("approver", "by"), [(RULES, "rule"), (f"{HERE}:approves_safe", "function")])
async def test_branch_answers_for_those_below_it(open_tree: Opener, approver: Any, by: str) -> None:
    """Rules and functions the program gave a Branch approve, deny, or pass the request on to Main."""
    async with open_tree(below("safe", "never", "else"), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go", approver=approver)
        (pending,) = await asked(tree)
        assert pending.request.arguments == {"text": "else"}
        await pending.approve()
        assert (await branch.result()).summary == "well"
        hops = [(fact.session, fact.answer, fact.by) for fact in await facts_of(tree, ApprovalStepRecorded)]
        escalated = ("main/b1", "escalate", by if by == "function" else "rule")
        assert hops == [
            ("main/b1", "approve", by),
            ("main/b1", "deny", by),
            escalated,
            ("main", "approve", "person"),
        ]
        assert [text for _, text in effects(open_tree.workspace)] == ["safe", "else"]


async def test_approver_that_waits_does_not_block_its_branch(open_tree: Opener) -> None:
    """A coroutine function answers when it likes."""
    async with open_tree(below("any"), tools=TOOLS, channel=None) as tree:
        branch = await tree.main.spawn("branch", "go", approver=f"{HERE}:approves_later")
        await branch.result()
        assert len(effects(open_tree.workspace)) == 1


@pytest.mark.parametrize(
    ("name", "words"), [("breaks", "RuntimeError: the approver is broken"), ("babbles", "'perhaps'")]
)
async def test_broken_approver_passes_the_request_on(open_tree: Opener, name: str, words: str) -> None:
    """A function that fails or babbles decides nothing; the next above is asked, and the reason is kept."""
    async with open_tree(below("any"), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go", approver=f"{HERE}:{name}")
        (pending,) = await asked(tree)
        await pending.deny()
        await branch.result()
        first = (await facts_of(tree, ApprovalStepRecorded))[0]
        assert (first.session, first.answer) == ("main/b1", "escalate")
        assert words in first.reason
        assert effects(open_tree.workspace) == []


async def test_approver_that_hangs_is_ended_with_its_branch(open_tree: Opener) -> None:
    """A function that never answers keeps its request open, and neither cancel nor close from working."""
    async with open_tree(below("any"), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go", approver=f"{HERE}:hangs")
        await until(tree, ApprovalWaiting, where=lambda fact: fact.how == "consult")
        assert (await branch.call("look")).output == "looked at x"
        receipt = await branch.cancel()
        assert {line.status for line in receipt} == {"cancelled"}
        assert effects(open_tree.workspace) == []


async def test_callable_in_the_program_is_the_channel_of_its_branch(open_tree: Opener) -> None:
    """A callable given with ``spawn`` is asked before Main, and Main's person is not."""
    seen: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append(request)
        return request.arguments["text"] == "yes"

    async with open_tree(below("yes", "no"), tools=TOOLS, channel=None) as tree:
        branch = await tree.main.spawn("branch", "go", approver=approve)
        await branch.result()
        assert [(request.session_id, request.asked) for request in seen] == [(BELOW, "main/b1")] * 2
        assert [text for _, text in effects(open_tree.workspace)] == ["yes"]


async def test_callable_that_fails_has_said_no(open_tree: Opener) -> None:
    """What goes wrong in an approver of the program never lets a call run."""

    def approve(request: ApprovalRequest) -> bool:
        raise LookupError("no such user")

    async with open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, approver=approve
    ) as tree:
        branch = await tree.main.spawn("branch", "go")
        await branch.result()
        said = results(tree, "main/b1")[0].text
        assert "denied by approver error: the approver failed: LookupError: no such user" in said
        await check_nobody_said_no(tree)
        assert effects(open_tree.workspace) == []


async def check_nobody_said_no(tree: SessionTree) -> None:
    """A failure is recorded as what it is, and not as a person's word: it binds no later call."""
    (decided,) = await facts_of(tree, ApprovalDecided)
    (hop,) = [fact for fact in await facts_of(tree, ApprovalStepRecorded) if fact.session == "main"]
    assert (decided.decision, decided.by, hop.answer, hop.by) == ("denied", BY_ERROR, "deny", BY_ERROR)
    assert decided.reason == hop.reason != ""
    assert await facts_of(tree, DigestDenied) == []


@pytest.mark.parametrize("answer", ["yes", 1, ApprovalAnswer(junk("yes")), ApprovalAnswer(True, junk(5))])
async def test_callable_that_answers_otherwise_has_said_no(open_tree: Opener, answer: Any) -> None:
    """Only True and an ApprovalAnswer of the right parts let a call run."""
    model = ScriptedModel([script_call("launch"), "done"])
    async with open_tree(model, tools=TOOLS, approver=lambda request: answer) as tree:
        branch = await tree.main.spawn("branch", "go")
        await branch.result()
        await check_nobody_said_no(tree)
        assert effects(open_tree.workspace) == []


async def test_callable_that_answers_none_leaves_the_request(open_tree: Opener) -> None:
    """None is no answer: the request waits for one that is."""
    model = ScriptedModel([script_call("launch"), "done"])
    async with open_tree(model, tools=TOOLS, approver=lambda request: None) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        assert await facts_of(tree, ApprovalDecided) == []
        await pending.approve()
        await branch.result()
        assert len(effects(open_tree.workspace)) == 1


async def test_sessions_own_approver_never_answers_for_itself(open_tree: Opener) -> None:
    """Rules of a Branch are for those below it: its own call climbs past them."""
    rules = [Rule(answer="approve")]
    async with open_tree(ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, channel=None) as tree:
        branch = await tree.main.spawn("branch", "go", approver=rules)
        await branch.result()
        assert [fact.decision for fact in await facts_of(tree, ApprovalDecided)] == ["denied"]
        assert effects(open_tree.workspace) == []


async def test_mains_rules_answer_for_main_itself(open_tree: Opener) -> None:
    """What the owner wrote down at the tree's creation is the owner's answer."""
    rules = [Rule(tool="launch", where={"/text": "safe"}, answer="approve"), Rule(answer="deny")]
    model = ScriptedModel([script_call("launch", text="safe"), script_call("launch", text="else"), "done"])
    async with open_tree(model, tools=TOOLS, approver=rules, channel=None) as tree:
        await tree.main.send("go")
        assert [text for _, text in effects(open_tree.workspace)] == ["safe"]


@pytest.mark.parametrize(
    ("mode", "decision", "by"), [("auto", "approved", "mode"), ("never", "denied", "mode")]
)
async def test_mode_without_a_person_decides_at_once(
    open_tree: Opener, mode: Any, decision: str, by: str
) -> None:
    """``auto`` says yes and records it, ``never`` says no; nobody is asked."""
    async with open_tree(below("any"), tools=TOOLS, approvals=mode) as tree:
        branch = await tree.main.spawn("branch", "go")
        await branch.result()
        (decided,) = await facts_of(tree, ApprovalDecided)
        assert (decided.decision, decided.by) == (decision, by)
        assert mode in decided.reason
        assert len(effects(open_tree.workspace)) == (1 if mode == "auto" else 0)


async def test_mode_smart_answers_what_is_known_and_asks_for_the_rest(open_tree: Opener) -> None:
    """The owner's smart rules come before the person, and no rule of a child comes with them."""
    smart = [
        Rule(tool="launch", where={"/text": "safe"}, answer="approve"),
        Rule(tool="launch", where={"/text": "bad"}, answer="deny"),
    ]
    model = below("safe", "bad", "else")
    async with open_tree(model, tools=TOOLS, approvals="smart", smart_rules=smart) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        assert pending.request.arguments == {"text": "else"}
        await pending.approve()
        await branch.result()
        decided = [(fact.decision, fact.by) for fact in await facts_of(tree, ApprovalDecided)]
        assert decided == [("approved", "mode"), ("denied", "mode"), ("approved", "person")]
        assert [text for _, text in effects(open_tree.workspace)] == ["safe", "else"]


async def test_mode_always_asks_each_time(open_tree: Opener) -> None:
    """The default: one yes is one call."""
    async with open_tree(below("one", "two"), tools=TOOLS) as tree:
        branch = await tree.main.spawn("branch", "go")
        for count in (1, 2):
            (pending,) = await asked(tree, count)
            await pending.approve()
        await branch.result()
        assert [text for _, text in effects(open_tree.workspace)] == ["one", "two"]


@pytest.mark.covers("APP12")
async def test_always_allow_answers_every_later_call_and_those_that_wait(open_tree: Opener) -> None:
    """A person's "always" holds for the tool in this tree, for requests on the screen too."""
    model = ScriptedModel(
        {
            "main/b1": [script_call("launch", text="one"), script_call("launch", text="two"), "done"],
            "main/b2": [script_call("launch", text="three"), "done"],
        }
    )
    async with open_tree(model, tools=TOOLS) as tree:
        first = await tree.main.spawn("branch", "go")
        second = await tree.main.spawn("branch", "go")
        pending, _ = await asked(tree, 2)
        await pending.approve(always=True)
        await first.result()
        await second.result()
        assert tree.approvals.pending() == []
        decided = [fact.by for fact in await facts_of(tree, ApprovalDecided)]
        assert sorted(decided) == ["always", "always", "person"]
        assert [fact.tool for fact in await facts_of(tree, ToolAlwaysAllowed)] == ["launch"]
        assert len(effects(open_tree.workspace)) == 3


@pytest.mark.own_runtime
async def test_one_answer_for_two_sessions_reaches_the_one_that_gives_way(open_tree: Opener) -> None:
    """The first to hear wants the one host, where the other still is when its call is allowed."""
    model = ScriptedModel(
        {
            "main/b1": [script_call("launch", text="one"), "done"],
            "main/b2": [script_call("launch", text="two"), "done"],
        }
    )
    async with asyncio.timeout(PATIENCE_S), open_tree(model, tools=TOOLS, slots=1) as tree:
        for _ in range(2):
            await tree.main.spawn("branch", "go")
        pending, _ = await asked(tree, 2)
        await pending.approve(always=True)
        for name in ("main/b1", "main/b2"):
            assert (await tree.session(name).result()).summary == "done"
    assert sorted(text for _, text in effects(open_tree.workspace)) == ["one", "two"]


@pytest.mark.parametrize("approver", ["nothing", f"{HERE}:missing", "no.such.room:name", [5], 5])
async def test_approver_that_cannot_answer_is_refused_at_the_spawn(open_tree: Opener, approver: Any) -> None:
    """A misspelt approver is a ConfigError, and no session is started."""
    async with open_tree(ScriptedModel(["done"])) as tree:
        with pytest.raises(ConfigError, match="approver"):
            await tree.main.spawn("branch", "go", approver=approver)
        assert len(tree.receipt()) == 1
