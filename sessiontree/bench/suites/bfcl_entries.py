"""The multi-turn entries of the Berkeley Function Calling Leaderboard, as its package carries them.

Reads the files of ``bfcl-eval``: entries, function documents, ground truth. Not here: running the functions.
Source of the format: bfcl-eval 2026.3.23, ``populate_test_cases_with_predefined_functions``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Final

from bfcl_eval.constants.category_mapping import VERSION_PREFIX
from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.gorilla_file_system import GorillaFileSystem
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.math_api import MathAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.message_api import MessageAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.posting_api import TwitterAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.ticket_api import TicketAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.trading_bot import TradingBot
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.travel_booking import TravelAPI
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.vehicle_control import VehicleControlAPI

from sessiontree import ConfigError, ToolCall, script_call
from sessiontree.contracts.values.quick_dataclass import dataclass

CATEGORIES: Final = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
CLASSES: Final[Mapping[str, Any]] = {
    each.__name__: each
    for each in (
        GorillaFileSystem,
        MathAPI,
        MessageAPI,
        TicketAPI,
        TradingBot,
        TravelAPI,
        TwitterAPI,
        VehicleControlAPI,
    )
}
"""The toy classes, by the name that entries use."""
_KEPT: Final = ("description", "default", "enum")
"""Members of a parameter's document that mean the same in JSON Schema."""


@dataclass(frozen=True, slots=True)
class BfclFunction:
    """One function that an entry offers."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema."""
    positions: tuple[str, ...]
    """The Python function's parameters, in order."""
    offered_at: int
    """The turn from which it is offered, from 0."""


@dataclass(frozen=True, slots=True)
class BfclEntry:
    """One entry: a conversation with its toy functions."""

    id: str
    category: str
    messages: tuple[str, ...]
    """What the user says, by turn."""
    functions: tuple[BfclFunction, ...]
    ground_truth: tuple[tuple[str, ...], ...]
    """Calls by turn, as Python source; empty where the request can't be carried out yet."""
    raw: Mapping[str, Any]
    """The entry as the package has it."""

    @property
    def is_long(self) -> bool:
        """Whether the functions return more text than the task needs."""
        return "long_context" in self.category

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes whose instances the functions change."""
        names: list[str] = self.raw["involved_classes"]
        return names

    def plan_calls(self) -> tuple[tuple[ToolCall, ...], ...]:
        """Return the ground truth as calls, by turn."""
        order = {each.name: each.positions for each in self.functions}
        return tuple(
            tuple(parse_call(source, order, self.id) for source in calls) for calls in self.ground_truth
        )


@functools.cache
def load_entries() -> Mapping[str, BfclEntry]:
    """Return the 800 entries by id, in the order of the categories."""
    return {each.id: each for category in CATEGORIES for each in _read_category(category)}


def parse_call(source: str, order: Mapping[str, Sequence[str]], where: str) -> ToolCall:
    """Return the call in a Python expression; nothing is evaluated but literals.

    Args:
        source: Such as ``tail('log.txt', lines=20)``.
        order: Names of the parameters of each function, for arguments that are given by position.
        where: What the expression belongs to, for messages.

    Raises:
        ConfigError: it is not a call of a known function with literal arguments.
    """
    try:
        parsed = ast.parse(source.strip(), mode="eval").body
        if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name):
            raise ValueError("it is not one call by name")
        names = order[parsed.func.id]
        if len(parsed.args) > len(names) or any(each.arg is None for each in parsed.keywords):
            raise ValueError("its arguments do not fit the function")
        given = dict(zip(names, map(ast.literal_eval, parsed.args), strict=False))
        given |= {str(each.arg): ast.literal_eval(each.value) for each in parsed.keywords}
        return script_call(parsed.func.id, **json.loads(json.dumps(given, allow_nan=False)))
    except (KeyError, TypeError, ValueError, RecursionError, SyntaxError) as error:
        raise ConfigError(f"{where}: the call {source!r} can't be read: {error!r}") from error


def call_source(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as Python source with literal arguments, the form that the checker takes.

    Raises:
        ConfigError: the name or a parameter is not an identifier.
    """
    for word in (name, *arguments):
        if not word.isidentifier():
            raise ConfigError(f"the call of {name!r} can't be written as Python: {word!r} is not a name")
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def build_parameters_schema(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a function document's ``parameters``; further arguments are not allowed."""
    return {**_convert_schema(document), "additionalProperties": False}


def _convert_schema(document: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": GORILLA_TO_OPENAPI[document["type"]]}
    schema |= {name: document[name] for name in _KEPT if name in document}
    if "properties" in document:
        schema["properties"] = {name: _convert_schema(each) for name, each in document["properties"].items()}
        schema["required"] = list(document.get("required", ()))
    if "items" in document:
        schema["items"] = _convert_schema(document["items"])
    return schema


def _read_category(category: str) -> Iterator[BfclEntry]:
    answers = {
        row["id"]: row["ground_truth"] for row in _load_rows(f"possible_answer/{_make_file_name(category)}")
    }
    for row in _load_rows(_make_file_name(category)):
        yield BfclEntry(
            row["id"],
            category,
            tuple(_read_message(turn) for turn in row["question"]),
            tuple(_read_functions(row)),
            tuple(tuple(calls) for calls in answers[row["id"]]),
            row,
        )


def _make_file_name(category: str) -> str:
    return f"{VERSION_PREFIX}_{category}.json"


def _read_message(turn: Sequence[Mapping[str, str]]) -> str:
    """Return what the user says; a turn without a message is the one that offers further functions."""
    if not turn:
        return inspect.cleandoc(DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC)
    return "\n".join(each["content"] for each in turn)


def _read_functions(row: Mapping[str, Any]) -> Iterator[BfclFunction]:
    held = {name: int(turn) for turn, names in row.get("missed_function", {}).items() for name in names}
    for class_name in row["involved_classes"]:
        for document in _load_rows(f"multi_turn_func_doc/{MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]}"):
            name = document["name"]
            yield BfclFunction(
                name,
                document["description"],
                build_parameters_schema(document["parameters"]),
                tuple(inspect.signature(getattr(CLASSES[class_name], name)).parameters)[1:],
                held.get(name, 0),
            )


@functools.lru_cache(maxsize=32)
def _load_rows(path: str) -> tuple[Mapping[str, Any], ...]:
    text = resources.files("bfcl_eval").joinpath("data", *path.split("/")).read_text("utf-8")
    return tuple(json.loads(line) for line in text.splitlines() if line.strip())
