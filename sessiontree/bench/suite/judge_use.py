"""What the models used that judged scores: kept in each score, and added up for a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sessiontree.contracts.values.quick_dataclass import dataclass

JUDGE: Final = "judge"
"""The member of a score's metadata that holds what the judge used."""


@dataclass(frozen=True, slots=True)
class JudgeUse:
    """What judges used."""

    asked: int = 0
    """How many scores a judge gave."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: JudgeUse) -> JudgeUse:
        """Return the sum."""
        return JudgeUse(
            self.asked + other.asked,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )


def judge_use(metadata: Iterable[Mapping[str, Any]]) -> JudgeUse:
    """Return what the judges of some scores used, from the metadata of the scores."""
    total = JudgeUse()
    for each in metadata:
        used = each.get(JUDGE)
        if isinstance(used, Mapping) and "cost_usd" in used:
            total += JudgeUse(
                1,
                int(used.get("input_tokens", 0)),
                int(used.get("output_tokens", 0)),
                float(used["cost_usd"]),
            )
    return total
