"""A person's no binds until an owner lifts it."""

from __future__ import annotations

import pytest

from sessiontree import ApprovalClosed, ApprovalRequest, PermissionDenied, ScriptedModel, tool
from sessiontree.channels.safe_text import question_text
from sessiontree.contracts.tree_facts import DenialLifted
from tests.behaviours.fact_fixtures import facts_of
from tests.behaviours.tree_fixtures import Opener


@tool
def launch() -> str:
    """Launch; no tier is declared, so every call is Elevated."""
    return "launched"


async def test_a_denial_binds_until_it_is_lifted(open_tree: Opener) -> None:
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
        with pytest.raises(ApprovalClosed):
            await tree.approvals.forget(request.request_id)
    tree = await open_tree.resume(tree.tree_id, model, tools=[launch], approver=decide)
    async with tree:
        assert (await tree.main.call("launch", {})).text == "launched"
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("covers", "said"),
    [
        (None, "allow? [y]es once, [a]lways this tool, [n]o, for good: "),
        (("wc -l …",), "allow? [y]es once, [a]lways wc -l …, [n]o, for good: "),
        ((), "allow? [y]es once, [n]o, for good: "),
    ],
)
def test_the_question_says_how_far_an_answer_goes(covers: tuple[str, ...] | None, said: str) -> None:
    """*Always* says what it covers, and no says that it lasts."""
    request = ApprovalRequest("r1", "main", "exec", {}, "d", "System", 0, "main", covers)
    assert question_text(request) == said
