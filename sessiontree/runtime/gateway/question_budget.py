"""Questions to models of providers, each held back until the budget can pay for all that it may use.

The rule is in :mod:`sessiontree.tree.state.reservations`; here are the size of a question and who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

from sessiontree.contracts.facts.session_facts import FailureCause
from sessiontree.contracts.settings.model_settings import ModelPrice, ModelSettings, merge_settings
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    Usage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.models.answers import ModelFailure
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt
from sessiontree.tree.state.budgets import find_payers
from sessiontree.tree.state.reservations import (
    Admitted,
    MostUsed,
    Postponed,
    Reservations,
    Unaffordable,
    extract_session,
)
from sessiontree.tree.state.state import TreeState

DEFAULT_OUTPUT_TOKENS: Final = 8_192
"""Maximum tokens of a reply that counts against a budget, if its settings give none."""
BYTES_PER_TOKEN: Final = 2
"""Bytes of text that make one token, at the least, of what is not counted by the provider yet."""
IMAGE_TOKENS: Final = 2_000
"""Maximum tokens of an image."""
MESSAGE_TOKENS: Final = 16
"""Tokens of a message, a call or a tool in addition to its text."""


@dataclass(frozen=True, slots=True)
class _HeldBack:
    question: AskModel
    config: AgentConfig
    send: Callable[[AskModel], None]
    refuse: Callable[[ModelFailure], None]


class QuestionBudget:
    """Holds back the questions of one tree.

    Args:
        state: The tree.
    """

    def __init__(self, state: TreeState) -> None:
        self._state = state
        self._reserved = Reservations(state)
        self._waiting: dict[str, _HeldBack] = {}
        """Questions by session, in the order in which they were asked."""
        self._replied: set[str] = set()
        """Sessions whose reply has arrived and is not charged yet."""
        self.sizes: dict[str, int] = {}
        """Tokens of each session's conversation as far as it was sent; other sessions have asked nothing."""

    def ask(
        self,
        session: str,
        question: AskModel,
        config: AgentConfig,
        send: Callable[[AskModel], None],
        refuse: Callable[[ModelFailure], None],
    ) -> None:
        """Send a session's question, now or when the budget can pay for it, or refuse it.

        ``session`` may be a place of its own, by :func:`~sessiontree.tree.state.reservations.place_in`.
        """
        if not self._is_counted(session):
            send(question)
            return
        self.drop(session)
        before = 0 if question.base == 0 else self.sizes.get(session, 0)
        self.sizes[session] = before + estimate_addition(
            question.prompt, question.messages, is_known=before > 0
        )
        self._try(session, _HeldBack(question, config, send, refuse))

    def on_replied(self, session: str, usage: Usage) -> None:
        """Take note of a reply; its reservation ends when it is charged."""
        if usage.input_tokens:
            self.sizes[session] = usage.tokens
        self._replied.add(session)

    def charged(self, session: str) -> None:
        """Take note that a session's usage was charged."""
        if session in self._replied:
            self._end(session)

    def drop(self, session: str) -> None:
        """Take note that a session's question failed, or is not asked any more: it may have ended."""
        self._waiting.pop(session, None)
        self._end(session)

    def close(self) -> None:
        """Send nothing more."""
        self._waiting.clear()

    def _end(self, session: str) -> None:
        self._replied.discard(session)
        if self._reserved.release(session):
            for name, waiting in list(self._waiting.items()):
                if self._waiting.pop(name, None) is not None:
                    self._try(name, waiting)

    def _try(self, session: str, waiting: _HeldBack) -> None:
        question, config = waiting.question, waiting.config
        payer = self._find_payer(session, "cost_usd")
        if payer is not None and find_price(question, config) == "unknown":
            waiting.refuse(_make_price_failure(payer, question, config))
            return
        most = _estimate_most_used(question, config, self.sizes[session])
        answer = self._reserved.ask(session, most)
        if isinstance(answer, Postponed):
            self._waiting[session] = waiting
        elif isinstance(answer, Unaffordable):
            reason = (
                f"{answer.limit} of {answer.account!r} has {answer.left:g} left; the next question may have "
                f"{most.input_tokens} tokens, and needs a reply"
            )
            cause: FailureCause = "budget.tokens" if answer.limit == "budget.tokens" else "budget.cost_usd"
            waiting.refuse(ModelFailure(reason, cause=cause, account=answer.account))
        else:
            waiting.send(_limit_question(question, answer))

    def _is_counted(self, session: str) -> bool:
        return any(self._find_payer(session, member) is not None for member in ("tokens", "cost_usd"))

    def _find_payer(self, session: str, member: str) -> str | None:
        """Return the account that pays for a member first, or None if no budget counts it."""
        found = self._state.sessions.get(extract_session(session))
        if found is None:
            return None
        return next(iter(find_payers(self._state.accounts, found.account, member)), None)


def find_price(question: AskModel, config: AgentConfig) -> ModelPrice | Literal["unknown"] | None:
    """Return the highest price of the model that is asked, as the agent's configuration has it."""
    if question.by_image_model:
        return config.image_price
    return config.compaction_price if question.by_compaction_model else config.model_price


def _make_price_failure(account: str, question: AskModel, config: AgentConfig) -> ModelFailure:
    model = config.compaction_model if question.by_compaction_model else config.model
    if question.by_image_model:
        model = config.image_model
    reason = (
        f"budget.cost_usd of {account!r} can't be kept: the price of {model!r} is not known; give "
        "ProviderModel(price=ModelPrice(…)), or a budget in tokens"
    )
    return ModelFailure(reason, cause="price", account=account)


def _limit_question(question: AskModel, admitted: Admitted) -> AskModel:
    """Return a question whose reply is at most as long as was reserved."""
    if admitted.output_tokens is None or question.settings.max_output_tokens == admitted.output_tokens:
        return question
    bound = ModelSettings(max_output_tokens=admitted.output_tokens)
    return replace(question, settings=merge_settings(question.settings, bound))


def _estimate_most_used(question: AskModel, config: AgentConfig, size: int) -> MostUsed:
    settings = question.settings
    thinking = settings.thinking if isinstance(settings.thinking, int) else 0
    output = settings.max_output_tokens or DEFAULT_OUTPUT_TOKENS + thinking
    if config.context_tokens is not None and not (question.by_compaction_model or question.by_image_model):
        size = min(size, config.context_tokens)
    price = find_price(question, config)
    known = price if isinstance(price, ModelPrice) else None
    return MostUsed(size, output, known, min(thinking, output - 1))


def estimate_addition(prompt: ModelPrompt | None, messages: Sequence[Message], *, is_known: bool) -> int:
    """Return the most tokens of what is sent in addition.

    Args:
        prompt: The system prompt and tools, if they are sent.
        messages: The new messages.
        is_known: Whether the provider has counted the conversation so far, and the replies in it.
    """
    tokens = sum(
        _estimate_message_size(each)
        for each in messages
        if not (is_known and isinstance(each, AssistantMessage))
    )
    if prompt is None:
        return tokens
    tokens += _estimate_tokens(prompt.system_prompt) + _estimate_tokens(dump_json(prompt.result_schema))
    for tool in prompt.tools:
        tokens += _estimate_tokens(tool.name + tool.description + dump_json(tool.parameters)) + MESSAGE_TOKENS
    return tokens


def _estimate_message_size(message: Message) -> int:
    tokens = MESSAGE_TOKENS
    for block in message.content:
        if isinstance(block, TextContent):
            tokens += _estimate_tokens(block.text)
        elif isinstance(block, ImageContent):
            tokens += IMAGE_TOKENS
        elif isinstance(block, ThinkingContent):
            tokens += _estimate_tokens(block.thinking)
        else:
            tokens += _estimate_tokens(block.name + dump_json(block.arguments)) + MESSAGE_TOKENS
    return tokens


def _estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
