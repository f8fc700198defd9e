"""A scripted model whose calls are damaged, and what became of them.

It makes the calls of a ground truth, some with damaged arguments. It corrects a call after an error only if
the error names what is wrong. The damaged text takes a provider's path: it is streamed and assembled.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sessiontree import CallPiece, Message, ModelRequest, StreamFunctionModel, ToolCall
from sessiontree.bench.suites.damage import DamagePlan, Schema, is_named, plan_damage
from sessiontree.bench.suites.ground_truth import (
    AnsweredCall,
    PlannedTurn,
    group_attempts,
    list_answered_calls,
)
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DamageSettings:
    """How much is damaged."""

    seed: int = 0
    rate: float = 0.5
    """Share of the calls that are damaged."""
    persistence: float = 0.25


class DamagedGroundTruth:
    """The planned calls, some with damaged arguments, and repaired when an error names the damage.

    Args:
        turns: What follows each message of the user.
        schemas: Schema of each tool.
        settings: How much is damaged.
        label: Further seed, such as the sample's id: each sample is damaged differently.
    """

    def __init__(
        self,
        turns: Sequence[PlannedTurn],
        schemas: Mapping[str, Schema],
        settings: DamageSettings,
        label: str,
    ) -> None:
        self.turns = tuple(turns)
        self.plans = tuple(
            tuple(
                _plan(each, schemas, settings, f"{label}/{turn}/{number}")
                for number, each in enumerate(planned.calls)
            )
            for turn, planned in enumerate(turns)
        )
        """For each turn and call how it is damaged, or None."""

    async def __call__(self, request: ModelRequest) -> AsyncIterator[str | CallPiece]:
        """Yield the next call with its argument text, or the final message."""
        done = list_answered_calls(request.messages)
        if not done or len(done) > len(self.turns):
            yield "The ground truth has no turn for this message."
            return
        turn = len(done) - 1
        planned = self.turns[turn]
        groups = group_attempts(done[-1])
        last = groups[-1][-1] if groups else None
        is_open = last is not None and last.rejection is not None and not last.is_final_rejection
        number = len(groups) - is_open
        if number >= len(planned.calls):
            yield planned.closing
            return
        attempt = len(groups[-1]) if is_open else 0
        plan = self.plans[turn][number]
        error = last.rejection if last is not None and is_open else None
        text = None if plan is None else plan.choose_text(attempt, error)
        call = planned.calls[number]
        yield CallPiece(json.dumps(dict(call.arguments)) if text is None else text, name=call.name, ends=True)

    def to_model(self) -> StreamFunctionModel:
        """Return the model that replies so."""
        return StreamFunctionModel(self, name="damaged")

    def outcomes(
        self, messages: Iterable[Message], executed: Sequence[Sequence[Mapping[str, Any]]]
    ) -> Iterator[DamageOutcome]:
        """Yield what became of each damaged call of a conversation.

        Args:
            messages: The conversation.
            executed: The arguments with which calls were carried out, by turn, in order.
        """
        for turn, answered in enumerate(list_answered_calls(messages)):
            carried_out = iter(executed[turn])
            for number, group in enumerate(group_attempts(answered)):
                given = None if group[-1].result.is_error else next(carried_out)
                plan = self.plans[turn][number]
                if plan is not None:
                    truth = self.turns[turn].calls[number].arguments
                    errors = [each.rejection for each in group]
                    named = all(
                        error is None or is_named(way, error)
                        for way, error in zip(plan.ways, errors, strict=False)
                    )
                    yield DamageOutcome(plan.kind, _classify_outcome(group, given, truth), named)


@dataclass(frozen=True, slots=True)
class DamageOutcome:
    """What became of one damaged call."""

    kind: str
    outcome: str
    """One of ``OUTCOMES``."""
    was_named: bool
    """Whether every error about its arguments named what was wrong."""


OUTCOMES: Final = ("corrected", "other_arguments", "attempt_2", "attempt_3", "given_up", "refused")
"""The runtime corrected it without an error; it was carried out with other arguments than the undamaged call;
it was carried out as intended at the second or third attempt; never; its tool was refused already."""


def _classify_outcome(
    group: Sequence[AnsweredCall], given: Mapping[str, Any] | None, truth: Mapping[str, Any]
) -> str:
    if given is None:
        return "given_up" if group[-1].is_final_rejection else "refused"
    if dict(given) != dict(truth):
        return "other_arguments"
    return "corrected" if len(group) == 1 else f"attempt_{len(group)}"


def _plan(
    call: ToolCall, schemas: Mapping[str, Schema], settings: DamageSettings, label: str
) -> DamagePlan | None:
    pick = random.Random(f"{settings.seed}/{label}")  # noqa: S311 - the same damage every time is the point
    if pick.random() >= settings.rate:
        return None
    return plan_damage(call.arguments, schemas[call.name], pick, persistence=settings.persistence)
