"""The plan of a task of inspect_ai: kept, with a tree in place of the model, or missed before it is lost.

``--solver`` replaces a task's solvers. With them go the tools that they give, and the choices that they show,
and the score is that of another task.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from contextlib import AsyncExitStack
from copy import copy
from typing import Any, Final, Literal

from inspect_ai import Task, task_with
from inspect_ai._util.registry import is_registry_object, registry_info
from inspect_ai.log import transcript
from inspect_ai.log._samples import sample_active
from inspect_ai.model import ChatMessageUser, GenerateConfig, Model, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.solver._chain import unroll

from sessiontree import ConfigError
from sessiontree.bench.adapters.inspect_bridge import (
    SPAWN,
    SampleBridge,
    TreeChoices,
    check_loop,
    collect_definitions,
)

_OF_TEXT: Final = frozenset(
    {
        "assistant_message",
        "chain_of_thought",
        "generate",
        "prompt_template",
        "system_message",
        "user_message",
    }
)
"""Solvers of inspect that give no tools and show no choices."""
_ADVICE: Final = (
    "keep the plan by `with_tree(task)` of sessiontree.bench.adapters.inspect_solver, or accept the loss by "
    "-S drops_plan=true"
)


def refuse_lost_plan(state: TaskState, own: Solver) -> None:
    """Refuse a sample whose task's own plan gave tools or choices that it has lost.

    Args:
        state: The sample's state where the tree begins.
        own: The solver that runs.

    Raises:
        ConfigError: they are lost, or a solver of the task may have given some; says what to do.
    """
    prompt = "\n".join(each.text for each in state.messages if isinstance(each, ChatMessageUser))
    if any(choice.value not in prompt for choice in state.choices or ()):
        raise ConfigError(
            f"sessiontree/tree: sample {state.sample_id!r} has choices, and no message shows them, because "
            f"the task's solvers were replaced; {_ADVICE}"
        )
    if state.tools:
        return
    for name in _find_replaced_solvers(own):
        if name not in _OF_TEXT:
            raise ConfigError(
                f"sessiontree/tree: the task's solver {name!r} was replaced, and the sample has no tools; it "
                f"may have given some; {_ADVICE}"
            )


def _find_replaced_solvers(own: Solver) -> list[str]:
    """Return the names of the active task's solvers if they do not run.

    inspect tells a solver nothing of the task that it runs in; but the task is one of the process's objects.
    """
    begun = [
        each.name for each in transcript().events if each.event == "span_begin" and each.type == "solver"
    ]
    active = sample_active()
    if active is None or not begun or begun[-1].split("/")[-1] != "tree":
        return []  # it runs inside of another solver, which knows what it does
    name = active.task.split("/")[-1]
    tasks = [each for each in gc.get_objects() if type(each) is Task and each.name.split("/")[-1] == name]
    plans = [unroll(each.solver) for each in tasks]
    if any(each is own for plan in plans for each in plan):
        return []
    return next((_list_names(plan) for plan in reversed(plans)), [])


def _list_names(solvers: Iterable[Any]) -> list[str]:
    return [
        registry_info(each).name.split("/")[-1]
        if is_registry_object(each)
        else getattr(each, "__name__", "?")
        for each in solvers
    ]


def replace_generate(task: Task, choices: TreeChoices, model: str | None) -> Task:
    """Return a task whose solvers are its own, and whose replies are those of a tree.

    Args:
        task: The task; it is not changed.
        choices: How the trees are opened.
        model: One of inspect's models; None = the one that is being evaluated.
    """
    plan = task.solver
    return task_with(copy(task), solver=planned_tree(plan, choices, model))


@solver
def planned_tree(plan: Solver, choices: TreeChoices, model: str | None = None) -> Solver:
    """Solve a sample by another solver, which a tree gives the replies that it asks for.

    Args:
        plan: The other solver.
        choices: How the tree is opened.
        model: One of inspect's models.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        check_loop()
        async with AsyncExitStack() as stack:
            replies = _TreeReplies(stack, choices, None if model is None else get_model(model))
            state = await plan(state, replies)
        if not replies.has_replied:
            raise ConfigError(
                f"with_tree: the plan of sample {state.sample_id!r} never called generate, so no tree "
                "replied; an agent that asks inspect's model itself is replaced as a whole: give the solver "
                "sessiontree/tree and its tools"
            )
        return state

    return solve


class _TreeReplies:
    """Takes the place of inspect's ``generate`` for one sample.

    Args:
        stack: Holds the tree until the plan has ended.
        choices: How the tree is opened.
        model: inspect's model.
    """

    def __init__(self, stack: AsyncExitStack, choices: TreeChoices, model: Model | None) -> None:
        self._stack = stack
        self._choices = choices
        self._model = model
        self._bridge: SampleBridge | None = None
        self._names: list[str] = []

    @property
    def has_replied(self) -> bool:
        """Whether the plan asked for a reply."""
        return self._bridge is not None

    async def __call__(
        self,
        state: TaskState,
        tool_calls: Literal["loop", "single", "none"] = "loop",
        cache: Any = None,
        **config: Any,
    ) -> TaskState:
        """Have the tree reply.

        Raises:
            ConfigError: a tree can't reply so.
        """
        definitions = await collect_definitions(state.tools)
        names = [each.name for each in definitions]
        if definitions and tool_calls != "loop":
            raise ConfigError(
                f'with_tree: a solver calls generate(tool_calls="{tool_calls}") with tools, and a tree runs '
                "the calls of its sessions itself; evaluate this task without a tree"
            )
        if self._bridge is None:
            self._names = names
            self._bridge = SampleBridge(state, definitions, self._model, self._choices)
            await self._stack.enter_async_context(self._bridge.serve())
        elif SPAWN in self._choices.builtin or names != self._names:
            raise ConfigError(
                "with_tree: a second reply needs the same tools and a session that starts no children; leave "
                "out builtin, or evaluate this task without a tree"
            )
        await self._bridge.reply(state, GenerateConfig(**config))
        return state
