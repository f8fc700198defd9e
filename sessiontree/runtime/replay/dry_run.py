"""What a resume would do at once: the machines decide on copies of their states. Reads and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallIntended, CallResolved, JobEnded, SessionFact
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.reports.dry_run import CallForecast, DryCall, DryQuestion, DryRun, DrySession
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.contracts.values.session_ids import MAIN, compute_session_key
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_facts, replay_session
from sessiontree.runtime.gateway.question_budget import DEFAULT_OUTPUT_TOKENS, estimate_addition
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import DecidedPhase, SessionState
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.state import Session, TreeState, make_initial_tree

_WAITS: Final[Mapping[DecidedPhase, CallForecast]] = {
    "asking": "approval",
    "delegated": "answer",
    "child": "child",
    "held": "turn",
    "approved": "turn",
}
"""What a call waits for, by the phase in which a resume leaves it."""


def forecast(
    config: TreeConfig,
    records: Sequence[JournalRecord],
    *,
    at_ms: int,
    prices: Mapping[str, ModelPrice],
    shared: int | None = None,
) -> DryRun:
    """Return what a resume of a tree would do before anything new happens.

    The stimuli are those that a resume feeds: the session's recovery, its adoption, and what it is owed. What
    has become overdue by then is not considered.

    Args:
        config: The tree's configuration.
        records: Its facts, from the first.
        at_ms: The time of the resume, in milliseconds since 1970.
        prices: Prices of models' tokens, by agent.
        shared: How many of the facts a fork shares with another tree; None = it is not a fork.

    Raises:
        JournalError: a fact can't be read.
    """
    state = make_initial_tree()
    texts: dict[str, list[str]] = {}
    settled: dict[str, list[SessionFact]] = {}
    for record in records:
        if record.session:
            texts.setdefault(record.session, []).append(record.text)
        for fact in read_facts(record.text):
            if not record.session:
                evolve(state, fact)
            elif shared is not None and record.seq > shared:
                settled.setdefault(record.session, []).append(fact)
    sessions = [
        _SessionForecast(config, state, node, texts.get(name, []), settled.get(name, [])).run(at_ms, prices)
        for name, node in state.sessions.items()
        if node.is_live
    ]
    costs = [each.question.most_usd for each in sessions if each.question is not None]
    known = [cost for cost in costs if cost is not None]
    return DryRun(
        config.forks[-1].tree_id if shared is not None else config.tree_id,
        shared,
        len(records),
        state.total - len(sessions),
        tuple(sessions),
        sum(known) if len(known) == len(costs) else None,
    )


class _SessionForecast:
    """One session, resumed in a copy of its state.

    Args:
        config: The tree's configuration.
        tree: The tree's state.
        node: The session there.
        texts: Its facts.
        settled: Those of them that a fork added.
    """

    def __init__(
        self,
        config: TreeConfig,
        tree: TreeState,
        node: Session,
        texts: Sequence[str],
        settled: Sequence[SessionFact],
    ) -> None:
        self._config = config
        self._tree = tree
        self._spec = node.spec
        self._texts = texts
        self._key = compute_session_key(config.nonce, node.spec.session_id)
        self._becomes: dict[str, CallForecast] = {}
        self._tools: dict[str, str] = {}
        self._lost_jobs = 0
        self._note_facts(settled)

    def run(self, at_ms: int, prices: Mapping[str, ModelPrice]) -> DrySession:
        """Return what the session would do."""
        name, spec = self._spec.session_id, self._spec
        row = next(each for each in self._config.agents if each.name == spec.agent)
        state = replay_session(spec, self._config.limits, self._texts, self._key)
        known = dict(state.calls)
        served = {key: len(call.program.answers) for key, call in known.items() if call.program is not None}
        replies, made = state.replies, state.calls_made
        waiting = [self._tree.posts[post_id].mail for post_id in self._tree.owed_to.list_members(name)]
        if self._texts or name != MAIN:  # Main that has never begun waits for its first message
            model = state.model or row.model
            tools = state.tools or spec.tools
            adopted = stimuli.Adopted(at_ms, tools, model, "", "", state.compaction_model)
            for stimulus in (stimuli.Recovered(at_ms), adopted, *waiting):
                facts, instructions = react(state, stimulus)
                self._note(instructions)
                self._note_facts(facts)
        for key, call in state.calls.items():
            if call.phase in _WAITS:
                self._becomes[key] = _WAITS[call.phase]
        tools_of = {**self._tools, **{key: call.tool for key, call in known.items()}}
        calls = tuple(
            DryCall(name, key, tools_of.get(key, ""), becomes, served.get(key, 0))
            for key, becomes in self._becomes.items()
        )
        return DrySession(
            name,
            spec.agent,
            state.model or row.model,
            replies,
            made - sum(not call.outside for call in known.values()),
            len(waiting),
            build_dry_question(state, prices.get(spec.agent)) if state.is_waiting_for_model else None,
            calls,
            self._lost_jobs,
            compute_remaining(self._tree, name),
        )

    def _note(self, instructions: Sequence[SessionInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case todo.PrepareCall(key=key):
                    self._becomes[key] = "begins"
                case todo.ExecuteCall(call=call):
                    self._becomes[call.key] = "repeats"
                case todo.AdvanceProgram(key=key):
                    self._becomes[key] = "program"
                case _:
                    pass

    def _note_facts(self, facts: Sequence[SessionFact]) -> None:
        for fact in facts:
            match fact:
                case CallIntended(call=call):  # it runs as soon as this is durable
                    self._becomes[call.key] = "begins"
                case CallResolved(key=key, outcome=outcome) if outcome in {"unknown", "skipped", "aborted"}:
                    self._tools[key] = fact.message.tool_name
                    self._becomes[key] = "unknown" if outcome == "unknown" else "skipped"
                case CallResolved(key=key):
                    self._becomes.pop(key, None)
                case JobEnded():
                    self._lost_jobs += 1
                case _:
                    pass


def build_dry_question(state: SessionState, price: ModelPrice | None) -> DryQuestion:
    """Return the reply that a session asks for, and what it costs at most."""
    settings = state.settings
    most_output = (None if settings is None else settings.max_output_tokens) or DEFAULT_OUTPUT_TOKENS
    most_input = _estimate_input_tokens(state)
    most_usd = None
    if price is not None and most_input is not None:
        most_usd = (most_input * price.input_per_million + most_output * price.output_per_million) / 1e6
    return DryQuestion(state.turn, most_input, most_output, most_usd)


def _estimate_input_tokens(state: SessionState) -> int | None:
    """Return the most tokens of a session's conversation; None if no provider has counted any of it."""
    for at in range(len(state.transcript) - 1, -1, -1):
        message = state.transcript[at]
        if isinstance(message, AssistantMessage) and message.usage.input_tokens:
            later = estimate_addition(None, state.transcript[at + 1 :], is_known=True)
            return message.usage.tokens + later
    return None
