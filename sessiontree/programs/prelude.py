"""The functions around a program, in the interpreter's own language: children, fan-outs and races.

They only combine calls, so nothing is decided here: each child is started by an ordinary call. The
interpreter has no tasks of its own and no semaphore; a fan-out is a number of loops that share a list.
"""

from __future__ import annotations

from typing import Final

SPAWN: Final = "spawn_child"
"""The call behind ``spawn``: it starts a child, and its answer is the child's report."""
ALWAYS: Final = """
import asyncio
"""

# A race withdraws the children that still run, by their group. Any other fan-out that stops waits for them,
# so that each of them has an outcome.
CHILDREN: Final = """
def _outcome_of(report, has_schema):
    status = report["status"]
    value = report.get("output") if has_schema else report.get("summary")
    outcome = {"status": report.get("cause") or status, "value": None, "error": None}
    outcome["session"] = report["session"]
    if status == "completed":
        outcome["status"] = status
        outcome["value"] = value
    else:
        outcome["error"] = report.get("summary") or status
    return outcome

def _refusal_of(error, status):
    return {"status": status, "value": None, "error": str(error), "session": None}

async def _child(kind, task, agent, schema, budget, label, workspace, timeout_s=None, group=None,
                 program=None, inputs=None, fan_out=None):
    given = {"kind": kind, "task": task or "Run the program.", "wait": "each"}
    for name, value in (("agent", agent), ("result_schema", schema), ("budget", budget), ("label", label),
                        ("workspace", workspace), ("timeout_s", timeout_s), ("_group", group),
                        ("program", program), ("inputs", inputs), ("_fan_out", fan_out)):
        if value is not None:
            given[name] = value
    try:
        report = await spawn_child(**given)
    except PermissionError as error:
        return _refusal_of(error, "denied")
    except ValueError as error:
        return _refusal_of(error, "invalid")
    except TimeoutError as error:
        return _refusal_of(error, "expired")
    except RuntimeError as error:
        for name, status in (("Aborted", "cancelled"), ("OutcomeUnknown", "lost")):
            if str(error).startswith(name):
                return _refusal_of(error, status)
        return _refusal_of(error, "not_started")
    return _outcome_of(report, schema is not None or program is not None)

def _value_of(outcome, what):
    if outcome["status"] == "completed":
        return outcome["value"]
    text = f"SessionFailed: {what} is {outcome['status']}: {outcome['error']}"
    if outcome["status"] == "denied":
        raise PermissionError(text)
    if outcome["status"] == "invalid":
        raise ValueError(text)
    if outcome["status"] == "expired":
        raise TimeoutError(text)
    raise RuntimeError(text)

async def spawn(kind, task="", *, agent=None, schema=None, budget=None, label=None, workspace=None,
                program=None, inputs=None, timeout_s=None, on_error="raise"):
    outcome = await _child(kind, task, agent, schema, budget, label, workspace, timeout_s, None, program,
                           inputs)
    if on_error == "return":
        return outcome
    return _value_of(outcome, outcome["session"] or "the child")

_fan_outs = []

async def _many(function, kind, tasks, agent, schema, budget, labels, workspace, timeout_s, concurrency,
                is_enough, group=None):
    todo = list(tasks)
    if not concurrency >= 1:
        raise ValueError(f"concurrency is {concurrency}; give 1 or more")
    if labels is not None and len(labels) != len(todo):
        raise ValueError(f"there are {len(labels)} labels and {len(todo)} tasks; give each task one label")
    _fan_outs.append(function)
    number = len(_fan_outs)
    fan_out(f"{number} {function} {len(todo)}")
    outcomes = [None] * len(todo)
    shared = {"next": 0, "stopped": False}
    async def work():
        while shared["next"] < len(todo) and not shared["stopped"]:
            at = shared["next"]
            shared["next"] = at + 1
            label = None if labels is None else labels[at]
            outcome = await _child(kind, todo[at], agent, schema, budget, label, workspace, timeout_s, group,
                                   fan_out=number)
            outcomes[at] = outcome
            status = outcome["status"]
            # A child that uses up a budget of its own says nothing about the others.
            if status in ("provider", "denied") or (status == "budget" and budget is None):
                shared["stopped"] = True
            elif is_enough(at, outcome):
                shared["stopped"] = True
                if group is not None:
                    withdraw(group)
    await asyncio.gather(*[work() for _ in range(min(concurrency, len(todo)))])
    fan_out(f"{number} ended {sum(1 for each in outcomes if each is None)}")
    missing = {"status": "not_started", "value": None, "session": None}
    missing["error"] = "the fan-out had ended before"
    return [dict(missing) if each is None else each for each in outcomes]

async def map(kind, tasks, *, agent=None, schema=None, budget=None, labels=None, workspace=None,
              timeout_s=None, concurrency=16, stop_after=None, on_error="raise"):
    if stop_after is not None and not stop_after >= 1:
        raise ValueError(f"map: stop_after is {stop_after}; give 1 or more, or None")
    failed = []
    def is_enough(at, outcome):
        if outcome["status"] != "completed":
            failed.append(at)
        return stop_after is not None and len(failed) >= stop_after
    outcomes = await _many("map", kind, tasks, agent, schema, budget, labels, workspace, timeout_s,
                           concurrency, is_enough)
    if on_error == "return":
        return outcomes
    counts = {}
    for each in outcomes:
        counts[each["status"]] = counts.get(each["status"], 0) + 1
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    return [_value_of(each, f"child {at} of {len(outcomes)} ({words})") for at, each in enumerate(outcomes)]

_races = []

async def race(kind, tasks, *, first=1, agent=None, schema=None, budget=None, labels=None, workspace=None,
               timeout_s=None, concurrency=16, on_error="raise"):
    todo = list(tasks)
    if not 1 <= first <= len(todo):
        raise ValueError(f"race: first is {first}, and there are {len(todo)} tasks")
    _races.append(kind)
    won = []
    def is_enough(at, outcome):
        if outcome["status"] == "completed":
            won.append(at)
        return len(won) >= first
    outcomes = await _many("race", kind, todo, agent, schema, budget, labels, workspace, timeout_s,
                           concurrency, is_enough, f"race {len(_races)}")
    if on_error == "return":
        return outcomes
    if len(won) < first:
        lost = [each for each in outcomes if each["status"] != "completed"]
        _value_of(lost[0], f"{len(won)} of {len(outcomes)} children completed, {first} were to, and one")
    return [outcomes[at]["value"] for at in won[:first]]
"""

PERSON: Final = "ask_user"
"""The tool behind ``ask``."""
ASK: Final = """
async def ask(question, options=None, *, timeout_s=None):
    item = {"question": question}
    if options is not None:
        item["options"] = [{"label": label} for label in options]
        item["allow_free_text"] = False
    given = {"questions": [item]}
    if timeout_s is not None:
        given["timeout_s"] = timeout_s
    answer = (await ask_user(**given))["answers"][0]
    return answer["text"] or ", ".join(answer["chosen"])
"""
ASK_STUBS: Final = """
async def ask(question: str, options: list[str] | None = None, *, timeout_s: float | None = None) -> str: ...
"""

# The interpreter has these exceptions, and its type checker does not know them.
STUBS: Final = """
import asyncio as asyncio
from typing import Any, Literal
class PermissionError(OSError): ...
class FileExistsError(OSError): ...
class FileNotFoundError(OSError): ...
class IsADirectoryError(OSError): ...
class NotADirectoryError(OSError): ...
def log(text: str) -> None: ...
def phase(name: str) -> None: ...
"""

CHILD_STUBS: Final = """
async def spawn(kind: Literal["branch", "worker"], task: str = "", *, agent: str | None = None,
    schema: dict[str, Any] | None = None, budget: dict[str, Any] | None = None, label: str | None = None,
    workspace: Literal["shared", "own"] | None = None, program: str | None = None,
    inputs: dict[str, Any] | None = None, timeout_s: float | None = None,
    on_error: Literal["raise", "return"] = "raise") -> Any: ...
async def map(kind: Literal["branch", "worker"], tasks: list[str], *, agent: str | None = None,
    schema: dict[str, Any] | None = None, budget: dict[str, Any] | None = None,
    labels: list[str] | None = None, workspace: Literal["shared", "own"] | None = None,
    timeout_s: float | None = None, concurrency: int = 16, stop_after: int | None = None,
    on_error: Literal["raise", "return"] = "raise") -> list[Any]: ...
async def race(kind: Literal["branch", "worker"], tasks: list[str], *, first: int = 1,
    agent: str | None = None, schema: dict[str, Any] | None = None, budget: dict[str, Any] | None = None,
    labels: list[str] | None = None, workspace: Literal["shared", "own"] | None = None,
    timeout_s: float | None = None, concurrency: int = 16,
    on_error: Literal["raise", "return"] = "raise") -> list[Any]: ...
"""
