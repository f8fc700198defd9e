"""tau2's retail (114 tasks) and airline (50) as suites: customer service with tools over one database.

Tasks, tools, databases and the judge are those of ``inspect-evals``. Every attempt has a database of its own.
``db_match`` judges: it compares that database with one on which the ground truth was carried out. No model
takes part in the verdict. Needs the environment of ``locks/inspect.txt``.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from inspect_ai.model import ModelName
from inspect_ai.scorer import CORRECT, Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolDef, ToolError
from inspect_ai.util import Store, store
from inspect_evals.tau2.airline.agents import get_domain_policy as airline_rules
from inspect_evals.tau2.airline.AirlineAgentTools import AirlineAgentTools
from inspect_evals.tau2.airline.data_model import FlightDB
from inspect_evals.tau2.airline.dataset import read_dataset as airline_tasks
from inspect_evals.tau2.airline.tools import all_airline_tools
from inspect_evals.tau2.common.metadata import Tau2MetaData
from inspect_evals.tau2.common.scorer import db_match
from inspect_evals.tau2.data_model.tasks import Task
from inspect_evals.tau2.retail.agents import get_domain_policy as retail_rules
from inspect_evals.tau2.retail.data_model import RetailDB
from inspect_evals.tau2.retail.dataset import read_dataset as retail_tasks
from inspect_evals.tau2.retail.RetailAgentTools import RetailAgentTools
from inspect_evals.tau2.retail.tools import all_retail_tools
from inspect_evals.tau2.utils import TAU2_DATA_DIR, USER_SIMULATOR_GUIDELINES

from sessiontree import AgentSpec, Limits, SessionFailed, SessionStatus, script_call
from sessiontree.bench.runnable_suite import Suite
from sessiontree.bench.suite.environment import LOCKS
from sessiontree.bench.suite.suite import Attempt, Sample, Score
from sessiontree.bench.suites.ground_truth import GroundTruth, PlannedTurn
from sessiontree.bench.suites.hosted_tools import Arguments, HostedTool, HostedToolFailed, serve_tools

DomainName: TypeAlias = Literal["retail", "airline"]
SERVICE: Final = "tau2"
"""Key of the service desk in an attempt's state."""
ENDS: Final = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""What a simulated user says to end the conversation."""
MAX_MESSAGES: Final = 100
"""Messages of the user in one conversation; the rest is left unsaid."""
MAX_TURNS: Final = 100
"""Replies of Main to one message."""
USER: Final = "user"
"""The agent that plays the user."""
_STATELESS: Final = frozenset({"calculate", "transfer_to_human_agents"})
_TOOLS: Final[Mapping[str, Any]] = {"retail": RetailAgentTools, "airline": AirlineAgentTools}
_DATABASES: Final[Mapping[str, Any]] = {"retail": RetailDB, "airline": FlightDB}
_FACTORIES: Final[Mapping[str, Sequence[Callable[[], Any]]]] = {
    "retail": all_retail_tools,
    "airline": all_airline_tools,
}
_RULES: Final[Mapping[str, Callable[[], str]]] = {"retail": retail_rules, "airline": airline_rules}


class ServiceDesk:
    """One attempt at one task: the database, and the tools that read and change it.

    Args:
        domain: Which database.
        task: The task.
    """

    def __init__(self, domain: DomainName, task: Task) -> None:
        self.domain = domain
        self.task = task
        database = _DATABASES[domain].model_validate_json(_read_database(domain))
        # A store of its own: inspect would keep all attempts' databases in one.
        self.backend = _TOOLS[domain](store=Store(), instance="attempt", db=database, initialized=True)
        self.tools = tuple(self._make_tool(make()) for make in _FACTORIES[domain])

    def _make_tool(self, made: Any) -> HostedTool:
        definition = ToolDef(made)
        name = definition.name
        method = made if name in _STATELESS else getattr(self.backend, name)
        schema = _simplify_unions(definition.parameters.model_dump(exclude_none=True))
        return HostedTool(name, definition.description, schema, functools.partial(_run, method))


def _simplify_unions(schema: Any) -> Any:
    """Return a schema in which a union of a described object and any object is the described one.

    tau2's functions accept both; a model is served best by the description, and many providers take no union.
    """
    if isinstance(schema, list):
        return [_simplify_unions(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    variants = schema.get("anyOf", ())
    described = [each for each in variants if each.get("type") == "object" and each.get("properties")]
    if len(described) == 1 and all(each.get("type") == "object" for each in variants):
        return {
            **{name: each for name, each in schema.items() if name != "anyOf"},
            **_simplify_unions(described[0]),
        }
    return {name: _simplify_unions(each) for name, each in schema.items()}


async def _run(method: Callable[..., Any], arguments: Arguments) -> Any:
    try:
        found = method(**arguments)
        return await found if inspect.isawaitable(found) else found
    except ToolError as error:
        raise HostedToolFailed(error.message) from error


@functools.lru_cache(maxsize=2)
def _read_database(domain: DomainName) -> bytes:
    return gzip.decompress((TAU2_DATA_DIR / "domains" / domain / "db.json.gz").read_bytes())


@functools.lru_cache(maxsize=2)
def load_tasks(domain: DomainName) -> Mapping[str, Task]:
    """Return the tasks of a domain by id, in the order of its file."""
    found = retail_tasks("RetailAgent") if domain == "retail" else airline_tasks("AirlineAgent")
    each = [Tau2MetaData.model_validate(sample.metadata).task for sample in found]
    return {task.id: task for task in each}


def plan_turn(task: Task) -> PlannedTurn:
    """Return what the ground truth does: all actions of the task, then the information to give."""
    criteria = task.evaluation_criteria
    actions = (criteria.actions if criteria else None) or []
    told = (criteria.communicate_info if criteria else None) or []
    calls = tuple(script_call(each.name, **each.arguments) for each in actions)
    return PlannedTurn(calls, " ".join(["Done.", *told]))


async def database_match(attempt: Attempt[Any]) -> Score:
    """Judge the attempt's database with ``db_match`` of inspect-evals."""
    return await judge_desk(attempt.state[SERVICE])


async def judge_desk(desk: ServiceDesk) -> Score:
    """Return the verdict of ``db_match`` on the database of a service desk."""
    metadata = Tau2MetaData(instance=desk.domain, task=desk.task).model_dump()
    state = TaskState(ModelName("none/none"), desk.task.id, 1, "", [], metadata=metadata)
    before = set(store().keys())
    with _remove_temporary_files():
        found = await db_match(desk.domain, desk.backend)(state, Target(""))
    for key in set(store().keys()) - before:
        store().delete(key)
    if found is None:
        return Score(0.0, explanation="db_match gave no verdict")
    return Score(float(found.value == CORRECT), explanation=found.explanation or "")


@contextlib.contextmanager
def _remove_temporary_files() -> Iterator[None]:
    """Remove the files that inspect-evals leaves: each verdict unpacks the database into a temporary file."""
    usual = tempfile.tempdir
    place = tempfile.mkdtemp(prefix="sessiontree-tau2-")
    tempfile.tempdir = place
    try:
        yield
    finally:
        tempfile.tempdir = usual
        for file in Path(place).glob("*.json"):
            file.unlink()
        with contextlib.suppress(OSError):  # another thread uses it; the system removes it some day
            Path(place).rmdir()


async def serve_customer(attempt: Attempt[int]) -> int:
    """Let Main talk with the user until the user ends it; return the number of the user's messages."""
    desk: ServiceDesk = attempt.state[SERVICE]
    said: list[tuple[str, str]] = []
    async with serve_tools(attempt.tree, desk.tools):
        while len(said) < MAX_MESSAGES:
            words = await _choose_next_words(attempt, desk.task, said)
            if not words or any(end in words for end in ENDS):
                break
            said.append((words, await attempt.tree.main.send(words)))
    return len(said)


async def _choose_next_words(attempt: Attempt[Any], task: Task, said: Sequence[tuple[str, str]]) -> str:
    """Return what the user says next; the user of the ground truth says everything at once, then stops.

    Raises:
        SessionFailed: the session that plays the user has no reply; says why.
    """
    if attempt.model == "ground-truth":
        return ENDS[0] if said else str(task.user_scenario)
    lines = [line for words, reply in said for line in (f"You: {words}", f"Agent: {reply}")]
    asked = "The conversation so far:\n" + "\n".join(lines) if lines else "The conversation begins."
    user = await attempt.tree.main.spawn(
        "worker", f"{asked}\n\nReply with your next message only.", agent=USER
    )
    result = await user.result()
    if result.status is not SessionStatus.COMPLETED:
        raise SessionFailed(user.session_id, f"it plays the user, and has no reply: {result.summary}")
    return result.summary


def make_service_suite(domain: DomainName, user_model: str | None = None) -> Suite:
    """Return the suite of one domain.

    Args:
        domain: ``retail`` or ``airline``.
        user_model: Name of the model that plays the user for every model but ``ground-truth``; None = the
            model that is tested.
    """

    def list_samples() -> list[Sample]:
        return [Sample(task_id, str(task.user_scenario)) for task_id, task in load_tasks(domain).items()]

    def tree_options(attempt: Attempt[Any]) -> Mapping[str, Any]:
        task = load_tasks(domain)[attempt.sample.id]
        desk = attempt.state[SERVICE] = ServiceDesk(domain, task)
        names = tuple(each.name for each in desk.tools)
        user = f"{USER_SIMULATOR_GUIDELINES}\n<scenario>\n{task.user_scenario}\n</scenario>"
        return {
            "tools": [each.to_client_tool() for each in desk.tools],
            "builtin_tools": False,
            "web": None,
            "agents": {
                "default": AgentSpec(prompt=_RULES[domain](), tools=names),
                USER: AgentSpec(prompt=user, tools=(), model=user_model or ""),
            },
            "limits": Limits(max_turns=MAX_TURNS, max_repeats=None, max_total=MAX_MESSAGES + 1),
        }

    def make_ground_truth_model(attempt: Attempt[Any]) -> Any:
        return GroundTruth([plan_turn(attempt.state[SERVICE].task)]).to_model()

    return Suite(
        f"tau2-{domain}",
        list_samples,
        serve_customer,
        database_match,
        tree=tree_options,
        models={"ground-truth": make_ground_truth_model},
        model="ground-truth",
        env=LOCKS / "inspect.txt",
    )


def retail(user_model: str | None = None) -> Suite:
    """Return tau2's retail domain, 114 tasks."""
    return make_service_suite("retail", user_model)


def airline(user_model: str | None = None) -> Suite:
    """Return tau2's airline domain, 50 tasks."""
    return make_service_suite("airline", user_model)
