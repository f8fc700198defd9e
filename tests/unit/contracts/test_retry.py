"""The pauses between attempts, and who may declare any."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAX_RETRY_ATTEMPTS, Retry, Tool, check_tool


@given(
    attempts=st.integers(2, MAX_RETRY_ATTEMPTS),
    delays=st.tuples(st.floats(0, 60), st.floats(0, 60)).map(sorted),
    draw=st.floats(0, 1),
)
@pytest.mark.covers("A25")
def test_pauses_double_up_to_the_longest(attempts: int, delays: list[float], draw: float) -> None:
    """Each is at most twice the one before, never below half of what it may be, never beyond the longest."""
    retry = Retry(attempts, *delays)
    longest = [retry.delay_s(failures, 1) for failures in range(1, attempts)]
    assert longest[0] == delays[0]
    for failures, most in enumerate(longest, start=1):
        assert most / 2 <= retry.delay_s(failures, draw) <= most <= delays[1]
        assert most == min(delays[1], delays[0] * 2 ** (failures - 1))


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"attempts": 11},
        {"first_delay_s": -1},
        {"first_delay_s": 5, "max_delay_s": 4},
        {"max_delay_s": 1e9},
        {"first_delay_s": float("nan")},
    ],
)
def test_numbers_outside_their_limits_are_refused(settings: dict[str, float]) -> None:
    """Before any tool has them."""
    with pytest.raises(ConfigError, match="Retry"):
        Retry(**settings)  # type: ignore[arg-type]


class Nothing(BaseModel):
    """No parameters."""


class Careful(Tool[Nothing]):
    """Declares how it is tried again."""

    name = "careful"
    description = "Do nothing."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    retry: ClassVar[Retry | None] = Retry()

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        """Do nothing."""
        return ToolResult()


@pytest.mark.parametrize("tier", [tier for tier in PermissionTier if tier is not PermissionTier.READ_ONLY])
def test_what_changes_things_declares_no_retry(tier: PermissionTier) -> None:
    """Unless a repeat changes nothing more."""
    careful = Careful()
    check_tool(careful)
    careful.tier = tier  # type: ignore[misc]
    with pytest.raises(ConfigError, match="runs once"):
        check_tool(careful)
    careful.idempotent = True  # type: ignore[misc]
    check_tool(careful)


def test_number_is_no_retry() -> None:
    """The fix is in the message."""
    careful = Careful()
    careful.retry = 3  # type: ignore[misc, assignment]
    with pytest.raises(ConfigError, match=r"Retry\(attempts="):
        check_tool(careful)
