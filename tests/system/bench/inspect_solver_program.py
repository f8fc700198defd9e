"""Evaluations of inspect_ai with the solver and the agent of this package; run in the suites' environment.

Prints one JSON object: what each evaluation's log says, by the name of the case. The model is inspect's own
mock, whose replies a function gives from the conversation.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from inspect_ai import Task, eval_async
from inspect_ai.agent import as_solver
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ChatMessage, ChatMessageTool, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import Solver, system_message, use_tools
from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import store
from inspect_ai.util._display import init_display_type

from sessiontree.bench.adapters.inspect_solver import tree, tree_agent
from sessiontree.runtime.replay.stored_trees import list_summaries

MOCK = "mockllm/model"
Script = Callable[[list[ChatMessage], list[str]], ModelOutput]


@tool
def add() -> Tool:
    """Return a tool that adds, and counts its calls in the sample's store."""

    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: The first number.
            y: The second number.
        """
        store().set("calls", store().get("calls", 0) + 1)
        return x + y

    return execute


@tool
def fail() -> Tool:
    """Return a tool that reports an error, raises one, or waits, as it is asked."""

    async def execute(how: str) -> str:
        """Fail.

        Args:
            how: The way.
        """
        if how == "report":
            raise ToolError("the shelf is empty")
        if how == "wait":
            await anyio.sleep(60)
        raise RuntimeError("the shelf broke")

    return execute


def called(name: str, **arguments: Any) -> ModelOutput:
    """Return a reply that calls a tool."""
    return _used(ModelOutput.for_tool_call(MOCK, name, arguments))


def said(text: str) -> ModelOutput:
    """Return a reply of text."""
    return _used(ModelOutput.from_content(MOCK, text))


def _used(output: ModelOutput) -> ModelOutput:
    output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    return output


def model_of(script: Script) -> Model:
    """Return inspect's mock with the replies of a function of the messages and the tools' names."""

    def reply(messages: list[ChatMessage], tools: list[Any], *_: Any) -> ModelOutput:
        return script(messages, [each.name for each in tools])

    return get_model(MOCK, custom_outputs=reply)


def adding(messages: list[ChatMessage], tools: list[str]) -> ModelOutput:
    """Call ``add``, then repeat its result."""
    results = [each for each in messages if isinstance(each, ChatMessageTool)]
    return said(f"the sum is {results[-1].text}") if results else called("add", x=1, y="2")


def endless(messages: list[ChatMessage], tools: list[str]) -> ModelOutput:
    """Call ``add`` again and again."""
    return called("add", x=len(messages), y=1)


def repeating(messages: list[ChatMessage], tools: list[str]) -> ModelOutput:
    """Make the same call of ``add`` again and again; it always returns the same."""
    return called("add", x=1, y=1)


def failing(how: str) -> Script:
    """Call ``fail`` once, then say what became of it."""

    def reply(messages: list[ChatMessage], tools: list[str]) -> ModelOutput:
        results = [each for each in messages if isinstance(each, ChatMessageTool)]
        if not results:
            return called("fail", how=how)
        error = results[-1].error
        return said(f"I heard: {error.type}: {error.message}" if error is not None else "no error")

    return reply


def delegating(messages: list[ChatMessage], tools: list[str]) -> ModelOutput:
    """Have a Worker add, then call ``fail``, which changes something, with what the Worker said."""
    if "sessions_spawn" not in tools:
        return adding(messages, tools)
    if "fail" in _calls_in(messages):
        return said(next(each.error.type for each in reversed(messages) if isinstance(each, ChatMessageTool)))
    if "the sum is" in messages[-1].text:
        return called("fail", how="report")
    if "sessions_spawn" in _calls_in(messages):
        return said("I wait.")
    return called("sessions_spawn", kind="worker", task="Add 1 and 2.")


def _calls_in(messages: list[ChatMessage]) -> list[str]:
    return [call.function for each in messages for call in getattr(each, "tool_calls", None) or ()]


async def evaluate(place: Path, solver: Solver, script: Script, **limits: Any) -> EvalLog:
    """Return the log of one sample, read from its file."""
    task = Task(
        dataset=[Sample(input="What is 1 + 2?", target="3", id="sum")],
        setup=[system_message("You add."), use_tools(add(), fail())],
        solver=solver,
        scorer=includes(),
        **limits,
    )
    (log,) = await eval_async(task, model=model_of(script), log_dir=str(place / "logs"), log_level="critical")
    return read_eval_log(log.location)


def facts_of(log: EvalLog) -> dict[str, Any]:
    """Return what a test asks of a log."""
    (sample,) = log.samples or [None]
    if sample is None:
        return {"status": log.status, "error": log.error and log.error.message}
    calls = [call.id for each in sample.messages for call in getattr(each, "tool_calls", None) or ()]
    return {
        "status": log.status,
        "roles": [each.role for each in sample.messages],
        "answer": sample.output.completion,
        "score": {name: score.value for name, score in (sample.scores or {}).items()},
        "tokens": {name: usage.total_tokens for name, usage in sample.model_usage.items()},
        "limit": sample.limit and sample.limit.type,
        "error": sample.error and sample.error.message,
        "store": sample.store,
        "tree": sample.metadata.get("sessiontree"),
        "calls": calls,
        "tool_events": [each.id for each in sample.events if each.event == "tool"],
        "spans": [each.name for each in sample.events if each.event == "span_begin"],
        "tool_errors": [each.error.type for each in sample.messages if each.role == "tool" and each.error],
    }


async def main(place: Path) -> dict[str, Any]:
    """Evaluate every case; return its facts by name."""
    own: dict[str, Any] = {"state_dir": str(place / "state")}
    guarded = {**own, "builtin": ["sessions_spawn"], "read_only": ["add"], "untrusted": ["add"]}
    flat = tree(**own)
    cases: dict[str, tuple[Solver, Script, dict[str, Any]]] = {
        "adds": (flat, adding, {}),
        "agent": (as_solver(tree_agent(tools=[add()], **own)), adding, {}),
        "never": (tree(approvals="never", **own), adding, {}),
        "never, known to read": (tree(approvals="never", read_only=["add"], **own), adding, {}),
        "token limit": (flat, endless, {"token_limit": 40}),
        "message limit": (flat, endless, {"message_limit": 6}),
        "same call": (flat, repeating, {"message_limit": 20}),
        "time limit": (flat, failing("wait"), {"time_limit": 2}),
        "tool error": (flat, failing("report"), {}),
        "broken tool": (flat, failing("raise"), {"fail_on_error": False}),
        "broken model": (flat, lambda *_: _broken(), {"fail_on_error": False}),
        "children": (tree(after_untrusted="ask", **guarded), delegating, {}),
    }
    found = {}
    for name, (solver, script, limits) in cases.items():
        found[name] = facts_of(await evaluate(place, solver, script, **limits))
    trees = list_summaries(place / "state")
    found["trees"] = {"count": len(trees), "live": sum(each.live for each in trees)}
    return found


def _broken() -> ModelOutput:
    raise ValueError("the model fell over")


if __name__ == "__main__":
    init_display_type("none")
    with tempfile.TemporaryDirectory() as folder:
        json.dump(asyncio.run(main(Path(folder))), sys.stdout)
