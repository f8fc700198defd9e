"""The solver ``sessiontree/tree`` and the agent ``sessiontree/tree_agent`` of inspect_ai.

Loaded by inspect through its entry point. Works with inspect_ai 0.3.285; other releases may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspect_ai import Task
from inspect_ai.agent import Agent, AgentState, agent
from inspect_ai.model import get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from sessiontree.bench.adapters.inspect_bridge import (
    SampleBridge,
    Tools,
    TreeChoices,
    build_policy,
    check_loop,
    collect_definitions,
)
from sessiontree.bench.adapters.inspect_plans import refuse_lost_plan, replace_generate
from sessiontree.bench.adapters.inspect_tools import ToolTiers


@solver
def tree(  # noqa: PLR0913 - options of inspect's command line
    read_only: Sequence[str] = (),
    untrusted: Sequence[str] = (),
    builtin: Sequence[str] = (),
    after_untrusted: str = "allow",
    approvals: str | None = None,
    model: str | None = None,
    own_prompt: bool = True,
    state_dir: str | None = None,
    drops_plan: bool = False,
) -> Solver:
    """Solve a sample with a tree of sessions; the sample's tools run here, and inspect's model answers.

    Args:
        read_only: Globs over names of tools that change nothing; Workers may hold these alone.
        untrusted: Globs over names of tools whose results hold text from outside.
        builtin: Names of built-in tools that sessions also hold, such as ``sessions_spawn``.
        after_untrusted: What happens to calls of tools that change something, after untrusted text:
            ``allow``, ``ask`` or ``deny``.
        approvals: What happens to calls that need an approval: ``never`` denies them, ``auto`` allows them;
            each governs System calls, too. None = Elevated calls are denied.
        model: Another of inspect's models; None = the one that is being evaluated.
        own_prompt: Whether the sample's messages follow the sessions' system prompt.
        state_dir: Directory of the trees' journal; None = in the user's state folder.
        drops_plan: Whether it may take the place of a plan that gave tools or showed choices.
    """
    choices = _build_choices(read_only, untrusted, builtin, after_untrusted, approvals, own_prompt, state_dir)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        check_loop()
        if not drops_plan:
            refuse_lost_plan(state, solve)
        await _run(state, state.tools, model, choices)
        return state

    return solve


@agent
def tree_agent(  # noqa: PLR0913 - as above
    tools: Tools = (),
    read_only: Sequence[str] = (),
    untrusted: Sequence[str] = (),
    builtin: Sequence[str] = (),
    after_untrusted: str = "allow",
    approvals: str | None = None,
    model: str | None = None,
    own_prompt: bool = True,
    state_dir: str | None = None,
) -> Agent:
    """Work on a conversation with a tree of sessions that holds some of inspect's tools.

    Args:
        tools: inspect's tools.
        read_only: As for :func:`tree`, like all that follow.
        untrusted: Globs over names of tools whose results hold text from outside.
        builtin: Names of built-in tools.
        after_untrusted: ``allow``, ``ask`` or ``deny``.
        approvals: ``never``, ``auto`` or None.
        model: Another of inspect's models.
        own_prompt: Whether the messages follow the sessions' system prompt.
        state_dir: Directory of the trees' journal.
    """
    choices = _build_choices(read_only, untrusted, builtin, after_untrusted, approvals, own_prompt, state_dir)

    async def execute(state: AgentState) -> AgentState:
        """Work on the conversation with a tree of sessions."""
        check_loop()
        await _run(state, tools, model, choices)
        return state

    return execute


def with_tree(  # noqa: PLR0913 - as above
    task: Task,
    *,
    read_only: Sequence[str] = (),
    untrusted: Sequence[str] = (),
    builtin: Sequence[str] = (),
    after_untrusted: str = "allow",
    approvals: str | None = None,
    model: str | None = None,
    own_prompt: bool = False,
    state_dir: str | None = None,
) -> Task:
    """Return a task with the same plan, in which a tree gives each reply that a solver asks for.

    Its samples, tools, choices, limits and scorers stay. A second ``generate`` is a second message to the
    same session.

    Args:
        task: The task.
        read_only: As for :func:`tree`, like all that follow but ``own_prompt``.
        untrusted: Globs over names of tools whose results hold text from outside.
        builtin: Names of built-in tools; with ``sessions_spawn`` a plan gets one reply.
        after_untrusted: ``allow``, ``ask`` or ``deny``.
        approvals: ``never``, ``auto`` or None.
        model: Another of inspect's models.
        own_prompt: Whether the sample's messages follow the sessions' system prompt.
        state_dir: Directory of the trees' journal.
    """
    choices = _build_choices(read_only, untrusted, builtin, after_untrusted, approvals, own_prompt, state_dir)
    return replace_generate(task, choices, model)


async def _run(state: Any, tools: Tools, model: str | None, choices: TreeChoices) -> None:
    chosen = None if model is None else get_model(model)
    await SampleBridge(state, await collect_definitions(tools), chosen, choices).run()


def _build_choices(
    read_only: Sequence[str],
    untrusted: Sequence[str],
    builtin: Sequence[str],
    after_untrusted: str,
    approvals: str | None,
    own_prompt: bool,
    state_dir: str | None,
) -> TreeChoices:
    return TreeChoices(
        ToolTiers(tuple(read_only), tuple(untrusted)),
        tuple(builtin),
        build_policy(after_untrusted),
        approvals,
        own_prompt=own_prompt,
        state_dir=None if state_dir is None else Path(state_dir).absolute(),
    )
