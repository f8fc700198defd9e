"""A person's no binds until an owner lifts it."""

from __future__ import annotations

import io

import pytest

from sessiontree import (
    AnswerTooLate,
    ApprovalAnswer,
    ApprovalRequest,
    PermissionDenied,
    ScriptedModel,
    TerminalChannel,
    script_call,
    tool,
)
from sessiontree.channels.safe_text import format_question
from sessiontree.contracts.facts.tree_facts import DenialLifted
from tests.behaviour.fact_fixtures import asked as waiting
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener


@tool
def launch() -> str:
    """Launch; no tier is declared, so every call is Elevated."""
    return "launched"


@pytest.mark.covers("APP11")
async def test_denial_binds_until_it_is_lifted(open_tree: Opener) -> None:
    """The repeated call is refused without a question, then asked about again, also after a resume."""
    answers = [False, True]
    requests: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> bool:
        requests.append(request)
        return answers[len(requests) - 1]

    model = ScriptedModel(["fine"])
    async with open_tree(model, tools=[launch], approver=decide) as tree:
        for _ in range(2):
            with pytest.raises(PermissionDenied):
                await tree.main.call("launch", {})
        (request,) = requests
        await tree.approvals.forget(request.request_id)
        assert [(fact.request_id, fact.by) for fact in await facts_of(tree, DenialLifted)] == [
            (request.request_id, "program")
        ]
        with pytest.raises(AnswerTooLate):
            await tree.approvals.forget(request.request_id)
    tree = await open_tree.resume(tree.tree_id, model, tools=[launch], approver=decide)
    async with tree:
        assert (await tree.main.call("launch", {})).text == "launched"
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("covers", "said"),
    [
        (None, "allow? [y]es once, [a]lways this tool, [n]o, for good, [l]ater: "),
        (("wc -l …",), "allow? [y]es once, [a]lways wc -l …, [n]o, for good, [l]ater: "),
        ((), "allow? [y]es once, [n]o, for good, [l]ater: "),
    ],
)
def test_question_says_how_far_an_answer_goes(covers: tuple[str, ...] | None, said: str) -> None:
    """*Always* says what it covers, and no says that it lasts."""
    assert format_question(shown(covers)) == said


async def test_later_leaves_the_request_open() -> None:
    """The terminal gives no answer, and says how one is given."""
    screen = io.StringIO()
    assert await TerminalChannel(io.StringIO("l\ny\n"), screen).ask(shown(None)) is None
    assert "sessiontree approvals --approve r1" in screen.getvalue()


async def test_always_that_covers_nothing_is_no_yes() -> None:
    """The terminal says so, and asks again."""
    screen = io.StringIO()
    answer = await TerminalChannel(io.StringIO("a\nalways\nn\n"), screen).ask(shown(()))
    assert answer is not None
    assert not answer.approve
    assert screen.getvalue().count("always would cover no later call") == 2
    answer = await TerminalChannel(io.StringIO("a\n"), screen).ask(shown(("wc …",)))
    assert answer == ApprovalAnswer(approve=True, always=True)


async def test_tree_waits_for_whoever_is_asked_later(open_tree: Opener) -> None:
    """The call goes on by the answer that another one gives."""
    channel = TerminalChannel(io.StringIO("later\n"), io.StringIO())
    async with open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=[launch], channel=channel
    ) as tree:
        sent = tree.main.send("go")
        (pending,) = await waiting(tree)
        await pending.approve()
        assert await sent == "done"


def shown(covers: tuple[str, ...] | None) -> ApprovalRequest:
    """Return a request whose *always* covers that."""
    return ApprovalRequest("r1", "main", "exec", {}, "d", "System", 0, "main", covers)
