"""What is set aside for a question: its price is that of the model that is asked, also for a summary."""

from __future__ import annotations

import pytest

from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.messages import TextContent, Usage, UserMessage
from sessiontree.models.answers import ModelFailure
from sessiontree.runtime.gateway.question_budget import DEFAULT_OUTPUT_TOKENS, QuestionBudget
from sessiontree.runtime.transport.frames import AskModel
from sessiontree.tree.state.protocol import UsageReported
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH

LOW = ModelPrice(input_per_million=0, output_per_million=1)
HIGH = ModelPrice(input_per_million=0, output_per_million=100)
CENT = Budget(cost_usd=0.01)
"""Pays for 10,000 tokens at the low price, and for 100 at the high one."""
QUESTION = AskModel(1, 0, (), None)
SUMMARY = AskModel(1, 0, (), None, summarises=True, by_compaction_model=True)
OWN_SUMMARY = AskModel(1, 0, (), None, summarises=True)
"""The session's model writes it, because the compaction model failed."""


class Asked:
    """Asks for the sessions of a tree, and keeps what became of each question."""

    def __init__(self, budget: Budget, config: AgentConfig) -> None:
        """Open a tree with two Branches that share its budget."""
        self.harness = Harness().open(budget=budget)
        self.sessions = [self.harness.spawn("main", BRANCH) for _ in range(2)]
        self.budget, self._config = QuestionBudget(self.harness.state), config
        self.sent: list[tuple[str, int | None]] = []
        self.refused: list[str] = []

    def ask(self, session: str, question: AskModel) -> None:
        """Ask for a session."""

        def send(sent: AskModel) -> None:
            self.sent.append((session, sent.settings.max_output_tokens))

        def refuse(failure: ModelFailure) -> None:
            self.refused.append(str(failure))

        self.budget.ask(session, question, self._config, send, refuse)


@pytest.mark.parametrize(
    ("model", "writer", "question", "tokens"),
    [
        (LOW, HIGH, QUESTION, DEFAULT_OUTPUT_TOKENS),
        (LOW, HIGH, SUMMARY, 100),
        (LOW, HIGH, OWN_SUMMARY, DEFAULT_OUTPUT_TOKENS),
        (HIGH, LOW, QUESTION, 100),
        (HIGH, LOW, SUMMARY, DEFAULT_OUTPUT_TOKENS),
        (HIGH, LOW, OWN_SUMMARY, 100),
    ],
)
def test_question_is_reserved_at_the_price_of_the_model_that_answers(
    model: ModelPrice, writer: ModelPrice, question: AskModel, tokens: int
) -> None:
    """The reply may be as long as the budget pays for at that price."""
    asked = Asked(
        CENT, AgentConfig(model="own", model_price=model, compaction_model="w", compaction_price=writer)
    )
    session = asked.sessions[0]
    asked.ask(session, question)
    assert asked.sent == [(session, tokens)]


def test_summary_under_way_holds_back_what_it_may_cost() -> None:
    """A reservation at the compaction model's price delays a cheap question until the summary is charged."""
    asked = Asked(
        CENT, AgentConfig(model="own", model_price=LOW, compaction_model="w", compaction_price=HIGH)
    )
    first, second = asked.sessions
    asked.ask(first, SUMMARY)
    asked.ask(second, QUESTION)
    assert asked.sent == [(first, 100)], "the second waits"
    used = Usage(10, 50, 0.005)
    asked.budget.on_replied(first, used)
    asked.harness.feed(UsageReported(asked.harness.now_ms, first, used))
    asked.budget.charged(first)
    assert asked.sent[1:] == [(second, 5_000)], "half a cent is left"
    assert asked.refused == []


def test_unknown_price_refuses_the_model_that_has_it_alone() -> None:
    """A summary is refused where the price of the compaction model is unknown, and so for the model's own."""
    asked = Asked(
        CENT, AgentConfig(model="own", model_price=LOW, compaction_model="w", compaction_price="unknown")
    )
    session = asked.sessions[0]
    asked.ask(session, QUESTION)
    asked.ask(session, SUMMARY)
    assert asked.sent == [(session, DEFAULT_OUTPUT_TOKENS)]
    assert ["the price of 'w' is not known" in each for each in asked.refused] == [True]


@pytest.mark.parametrize(("question", "tokens"), [(QUESTION, 4_000), (SUMMARY, 2_952)])
def test_conversation_counts_up_to_the_context_of_the_session_s_model(
    question: AskModel, tokens: int
) -> None:
    """What is longer than the context is compacted first; the compaction model is sent all of it."""
    asked = Asked(Budget(tokens=5_000), AgentConfig(context_tokens=1_000, compaction_model="w"))
    session = asked.sessions[0]
    message = UserMessage((TextContent("a" * 4_064),), 0)
    asked.ask(session, AskModel(1, 0, (message,), None, by_compaction_model=question.by_compaction_model))
    assert asked.sent == [(session, tokens)]
