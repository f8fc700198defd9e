"""Guards and tools see one name, however a model spells a parameter (REL-L40); two spellings are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.tools.tool import Tool
from sessiontree.contracts.values.jsonable import compute_digest
from sessiontree.schema.compiled import compile_tool
from sessiontree_tools import builtin_tools

TOOLS = {tool.name: tool for tool in builtin_tools()}
CLAUDE_STYLE = {"path": "file_path", "old_text": "old_string", "new_text": "new_string"}
"""Seed 000, section 6.2: this house's name to the other one."""
BESIDE = {("memory_get", "from"): "path", ("memory_get", "lines"): "path"}
"""What a parameter means nothing without."""
PATTERNS = {"^[0-9a-f]{32}$": "a" * 32, "^[A-Za-z]{2}$": "uk"}


def sample(schema: dict[str, Any]) -> Any:
    """Return a value that fits a parameter of a built-in tool."""
    if "enum" in schema:
        return schema["enum"][0]
    if "pattern" in schema:
        return PATTERNS[schema["pattern"]]
    kind = schema["type"]
    if kind in {"integer", "number"}:
        return max(1, schema.get("minimum", 1))
    if kind == "array":
        return [sample(schema["items"])]
    return {"string": "x" * schema.get("minLength", 1), "boolean": True, "object": {}}[kind]


def cases_of(name: str) -> set[str]:
    """Return a name in camelCase and in snake_case."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return {snake, re.sub(r"_([a-z])", lambda found: found[1].upper(), snake)}


def spellings() -> Iterator[tuple[str, str, str]]:
    """Yield tool, parameter, and another spelling of it, for all of them."""
    for name, tool in TOOLS.items():
        schema: Any = compile_tool(tool).schema
        for parameter in schema["properties"]:
            others = [alias for alias, meant in tool.param_aliases.items() if meant == parameter]
            others += [CLAUDE_STYLE[parameter]] if parameter in CLAUDE_STYLE else []
            for other in {case for each in (parameter, *others) for case in (each, *cases_of(each))}:
                if other != parameter:
                    yield name, parameter, other


ALL = sorted(spellings())


def arguments_of(tool: Tool[Any], parameter: str) -> dict[str, Any]:
    """Return arguments with one parameter and all that is required alongside it."""
    schema: Any = compile_tool(tool).schema
    beside = BESIDE.get((tool.name, parameter), parameter)
    names = dict.fromkeys([*schema.get("required", ()), beside, parameter])
    return {name: sample(schema["properties"][name]) for name in names}


@pytest.mark.covers("I25", "I26", "REL-L40")
@pytest.mark.parametrize(("name", "parameter", "spelling"), ALL)
def test_another_spelling_is_the_same_call(name: str, parameter: str, spelling: str) -> None:
    """What hooks, policy and approvals are shown, and the digest they are bound to, know one name alone."""
    tool = TOOLS[name]
    compiled, plain = compile_tool(tool), arguments_of(tool, parameter)
    spelled = {spelling if key == parameter else key: value for key, value in plain.items()}
    _, by_name = compiled.validate(plain)
    _, by_spelling = compiled.validate(spelled)
    assert by_spelling == by_name
    assert compute_digest(name, by_spelling) == compute_digest(name, by_name)


@pytest.mark.covers("REL-L40")
@pytest.mark.parametrize(("name", "parameter", "spelling"), ALL)
def test_two_spellings_at_once_are_refused(name: str, parameter: str, spelling: str) -> None:
    """A guard that looked at one would not see the other; the refusal names both."""
    tool = TOOLS[name]
    plain = arguments_of(tool, parameter)
    for arguments in ({**plain, spelling: plain[parameter]}, {spelling: plain[parameter], **plain}):
        with pytest.raises(ValidationError) as caught:
            compile_tool(tool).validate(arguments)
        assert parameter in caught.value.message
        assert spelling in caught.value.message


def test_there_are_spellings_to_try() -> None:
    """Every way to spell is among them."""
    assert len(ALL) >= 25
    assert {("read", "path", "filePath"), ("edit", "old_text", "oldString")} <= set(ALL)
    assert {("memory_search", "max_results", "limit"), ("grep", "ignore_case", "ignoreCase")} <= set(ALL)
