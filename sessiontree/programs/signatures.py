"""How a program sees the tools of its session: as typed functions, and as a list for the model's prompt."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.programs import prelude

MOST_VALUES: Final = 40
"""Values of an enumeration that a signature names."""
_BUILT_IN: Final = frozenset(dir(builtins))
_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict[str, Any]",
    "array": "list[Any]",
}


@dataclass(frozen=True, slots=True)
class SeenTool:
    """A tool as a program sees it."""

    name: str
    schema: Mapping[str, JsonValue]
    """JSON Schema of its parameters."""


@dataclass(frozen=True, slots=True)
class ProgramFace:
    """Everything that an interpreter is given about the tools of a session."""

    stubs: str
    """Declarations for the type checker."""
    prelude: str
    """What runs before the program."""
    tools: Mapping[str, str]
    """The tool of each function that the interpreter may call."""


def face_of(tools: Iterable[SeenTool], *, spawns: str = "") -> ProgramFace:
    """Return how a program sees tools.

    Args:
        tools: The tools that it may call by name.
        spawns: The tool that starts children; empty = the session starts none.
    """
    stubs, before = [prelude.STUBS], [prelude.ALWAYS]
    callable_: dict[str, str] = {}
    for tool in tools:
        name = function_name(tool.name)
        stubs.append(signature_of(tool))
        if name in _BUILT_IN:
            # An unknown name is looked up outside; a built-in one would be found first.
            before.append(f"{name} = tool_{name}\n")
            callable_[f"tool_{name}"] = tool.name
        else:
            callable_[name] = tool.name
    if spawns:
        stubs.append(prelude.CHILD_STUBS)
        before.append(prelude.CHILDREN)
        callable_[prelude.SPAWN] = spawns
    return ProgramFace("".join(stubs), "".join(before), callable_)


def function_name(tool: str) -> str:
    """Return the name of a tool's function: the tool's own, as far as Python can spell it."""
    name = "".join(each if each.isalnum() or each == "_" else "_" for each in tool)
    return f"{name}_" if keyword.iskeyword(name) else name


def signature_of(tool: SeenTool) -> str:
    """Return the declaration of a tool's function, a line that ends with a line break."""
    properties = tool.schema.get("properties")
    required = tool.schema.get("required")
    names = properties if isinstance(properties, dict) else {}
    needed = set(required) if isinstance(required, list) else set()
    words = []
    for name, schema in sorted(names.items(), key=lambda each: each[0] not in needed):
        if not name.isidentifier() or keyword.iskeyword(name):
            continue
        hint = type_of(schema)
        words.append(f"{name}: {hint}" if name in needed else f"{name}: {_with_none(hint)} = ...")
    arguments = f"*, {', '.join(words)}" if words else ""
    return f"async def {function_name(tool.name)}({arguments}) -> Any: ...\n"


def _with_none(hint: str) -> str:
    return hint if hint == "Any" or hint.endswith("None") else f"{hint} | None"


def type_of(schema: object) -> str:
    """Return the Python type of a JSON Schema; ``Any`` where it has none that is as narrow."""
    if not isinstance(schema, Mapping):
        return "Any"
    values: Any = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and 0 < len(values) <= MOST_VALUES:
        plain = [each for each in values if isinstance(each, str | int | bool) or each is None]
        return f"Literal[{', '.join(map(repr, plain))}]" if len(plain) == len(values) else "Any"
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            kinds = list(dict.fromkeys(type_of(each) for each in schema[word]))
            return "Any" if "Any" in kinds else " | ".join(kinds)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_TYPES.get(each, "Any") for each in kind)) or "Any"
    if kind == "array" and "items" in schema:
        return f"list[{type_of(schema['items'])}]"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"
