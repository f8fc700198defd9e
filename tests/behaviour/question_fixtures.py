"""Trees whose model asks a person, and the wait for what it asks."""

from __future__ import annotations

from typing import Any, Final

from sessiontree import AgentSpec, Limits, PendingQuestion, ScriptedModel, SessionTree, script_call
from sessiontree.contracts.facts.tree_facts import ClientCallOpened
from tests.behaviour.fact_fixtures import until

ENDLESS: Final = Limits(approval_patience_s=None)
ASKS: Final = {"default": AgentSpec(tools=("ask_user",))}
COLOUR: Final[dict[str, Any]] = {
    "question": "Which colour?",
    "options": [{"label": "red"}, {"label": "blue", "description": "like the sea"}],
}


def ask(*items: dict[str, Any]) -> Any:
    """Return a scripted call that asks these questions; none = one about a colour."""
    return script_call("ask_user", questions=[*items] or [COLOUR])


def asking_model(*items: dict[str, Any]) -> ScriptedModel:
    """Return a model whose sessions ask once, then end."""
    return ScriptedModel([ask(*items), "done"])


async def waiting(tree: SessionTree, count: int = 1) -> list[PendingQuestion]:
    """Wait until so many questions were ever asked, and return those that wait now."""
    await until(tree, ClientCallOpened, count=count)
    return tree.questions.pending()
