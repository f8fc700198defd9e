"""A suite's trees are opened with an app: one for all samples, or one for each attempt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentSpec, App, ConfigError, FunctionModel, Limits, ModelRequest, PermissionTier, tool
from sessiontree.bench import Attempt
from tests.system.bench.suite_fixtures import ECHO, ended, suite


@tool(tier=PermissionTier.READ_ONLY)
def count() -> int:
    """Count to one."""
    return 1


def tools_and_agent(request: ModelRequest) -> str:
    """Return what a session has."""
    names = " ".join(each.name for each in request.tools)
    return f"{request.agent}: {names}, {request.system_prompt.count('plain')}"


SEES = FunctionModel(tools_and_agent, name="sees")
APP = App(tools=[count], builtin_tools=False)
MADE: dict[str, Callable[[], Any]] = {
    "an app": lambda: APP,
    "an app among arguments": lambda: {"app": APP, "limits": Limits(max_depth=2)},
    "an app of each attempt": lambda: lambda attempt: APP,
    "keywords": lambda: {"tools": [count], "builtin_tools": False},
}


def saw_count(attempt: Attempt[str]) -> bool:
    """Main ran as the default agent, and held the one tool."""
    return attempt.output.startswith("default: count,")


@pytest.mark.parametrize("how", MADE)
async def test_trees_have_the_suites_app_and_the_runs_model(tmp_path: Path, how: str) -> None:
    """However the suite gives it; a model that the app does not name is the run's."""
    found = await ended(suite(2, model=SEES, tree=MADE[how](), scorers=saw_count), tmp_path / "run")
    assert (found.scored, found.passed) == (2, 2)


async def test_model_of_an_app_counts_before_the_runs(tmp_path: Path) -> None:
    """As that among arguments does; a suite whose app has one needs no other."""
    app = App(model=SEES, tools=[count], builtin_tools=False)
    for model in (ECHO, None):
        run = suite(1, model=model, tree=app, scorers=saw_count).run(
            tmp_path / f"run-{model is None}", backend="local"
        )
        assert (await run).counts.scored == 1


async def test_agent_as_solver_joins_the_agents_of_an_app(tmp_path: Path) -> None:
    """It is the default agent; the others stay."""
    app = App(agents={"other": AgentSpec()}, builtin_tools=False, tools=[count])
    solver = AgentSpec(prompt="plain plain")
    found = await ended(suite(1, model=SEES, tree=app, solver=solver, scorers=used_prompt), tmp_path / "run")
    assert found.passed == 1


def used_prompt(attempt: Attempt[str]) -> bool:
    """The solver's own prompt was there."""
    return attempt.output.endswith(", 2") and attempt.output.startswith("default: count")


async def test_app_and_its_members_are_refused(tmp_path: Path) -> None:
    """As by a tree: before a sample begins, also if a function returns both."""
    both: dict[str, Any] = {"app": APP, "tools": []}
    with pytest.raises(ConfigError, match="app and tools are given"):
        await suite(1, tree=both).run(tmp_path / "run", backend="local")
    with pytest.raises(ConfigError, match="app and tools are given"):
        await suite(1, tree=lambda attempt: both).run(tmp_path / "run", backend="local")


def test_what_is_neither_an_app_nor_arguments_is_refused() -> None:
    """Where the suite is made."""
    with pytest.raises(ConfigError, match="give an App, or arguments of a SessionTree"):
        suite(1, tree=[count])
    with pytest.raises(ConfigError, match="tree has 'runtime', which the run sets"):
        suite(1, tree={"runtime": None})
