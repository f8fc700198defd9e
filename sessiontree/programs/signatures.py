"""How a program sees the tools of its session: as typed functions, and as a list for the model's prompt."""

from __future__ import annotations

import builtins
import keyword
import sys
from collections.abc import Mapping
from typing import Any, Final

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.programs import prelude

MOST_VALUES: Final = 40
"""Values of an enumeration that a signature names."""
TIMEOUT: Final = "timeout_s"
"""What bounds the time that a program waits for a call, in seconds."""
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
class ProgramFace:
    """Everything that an interpreter is given about the tools of a session."""

    stubs: str
    """Declarations for the type checker."""
    prelude: str
    """What runs before the program."""
    tools: Mapping[str, str]
    """The tool of each function that the interpreter may call."""
    with_own_timeout: frozenset[str]
    """The functions whose ``timeout_s`` is a parameter of their tool; that of any other bounds the wait."""


def build_face(tools: Mapping[str, Mapping[str, JsonValue]], starter: str) -> ProgramFace:
    """Return how a program sees tools.

    Args:
        tools: The tools that it may call: the schemas of their parameters, by name.
        starter: The tool that starts children; a program calls it by ``spawn`` and ``map`` instead.
    """
    stubs, before = [prelude.STUBS], [prelude.ALWAYS]
    seen: dict[str, str] = {}
    own: set[str] = set()
    for tool, schema in tools.items():
        if tool == starter:
            continue
        name = make_function_name(tool)
        stubs.append(format_signature(tool, schema))
        if name in _BUILT_IN:
            # An unknown name is looked up outside; a built-in one would be found first.
            before.append(f"{name} = tool_{name}\n")
            seen[f"tool_{name}"] = tool
        else:
            seen[name] = tool
        if TIMEOUT in _get_properties(schema):
            own |= {name, f"tool_{name}"}
    if prelude.PERSON in tools:
        stubs.append(prelude.ASK_STUBS)
        before.append(prelude.ASK)
    if starter in tools:
        stubs.append(prelude.CHILD_STUBS)
        before.append(prelude.CHILDREN)
        seen[prelude.SPAWN] = starter
    # Most sessions of a host hold the same tools: their faces share the texts.
    return ProgramFace(sys.intern("".join(stubs)), sys.intern("".join(before)), seen, frozenset(own))


def make_function_name(tool: str) -> str:
    """Return the name of a tool's function: the tool's own, as far as Python can spell it."""
    name = "".join(each if each.isalnum() or each == "_" else "_" for each in tool)
    return f"{name}_" if keyword.iskeyword(name) else name


def format_signature(tool: str, parameters: Mapping[str, JsonValue]) -> str:
    """Return the declaration of a tool's function, a line that ends with a line break."""
    arguments = list_arguments(parameters)
    words = [
        f"{name}: {hint}" if is_needed else f"{name}: {_add_none(hint)} = ..."
        for name, hint, is_needed in arguments
    ]
    if TIMEOUT not in _get_properties(parameters):
        words.append(f"{TIMEOUT}: float = ...")
    return f"async def {make_function_name(tool)}(*, {', '.join(words)}) -> Any: ...\n"


def list_arguments(parameters: Mapping[str, JsonValue]) -> list[tuple[str, str, bool]]:
    """Return the arguments of a tool's function: their names, types, and whether they must be given.

    Those that must be given come first. An argument whose name Python can't spell is left out.
    """
    required = parameters.get("required")
    needed = set(required) if isinstance(required, list) else set()
    return [
        (name, derive_type(schema), name in needed)
        for name, schema in sorted(
            _get_properties(parameters).items(), key=lambda each: each[0] not in needed
        )
        if name.isidentifier() and not keyword.iskeyword(name)
    ]


def _get_properties(parameters: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    properties = parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def _add_none(hint: str) -> str:
    return hint if hint == "Any" or hint.endswith("None") else f"{hint} | None"


def derive_type(schema: object) -> str:
    """Return the Python type of a JSON Schema; ``Any`` where it has none that is as narrow."""
    if not isinstance(schema, Mapping):
        return "Any"
    values: Any = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and 0 < len(values) <= MOST_VALUES:
        plain = [each for each in values if isinstance(each, str | int | bool) or each is None]
        return f"Literal[{', '.join(map(repr, plain))}]" if len(plain) == len(values) else "Any"
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            kinds = list(dict.fromkeys(derive_type(each) for each in schema[word]))
            return "Any" if "Any" in kinds else " | ".join(kinds)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_TYPES.get(each, "Any") for each in kind)) or "Any"
    if kind == "array" and "items" in schema:
        return f"list[{derive_type(schema['items'])}]"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"
