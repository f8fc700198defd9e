"""Saving a program of a run: its recorded text becomes a file with a typed ``main``."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sessiontree.api.programs.program_files import SUFFIX, parse_saved_text
from sessiontree.api.programs.program_signature import MAIN, UnfitProgram
from sessiontree.contracts.recorded.programs import ProgramSource
from sessiontree.contracts.tools.program_tool import MAIN_CALL
from sessiontree.contracts.values.jsonable import JsonValue

_INDENT = "    "


def build_saved_text(
    code: str, inputs: Mapping[str, JsonValue], tools: Sequence[str], description: str
) -> str:
    """Return the text of a saved program that does what a program of a run did.

    Args:
        code: The program's text; its last expression becomes what ``main`` returns.
        inputs: Its variables, which become the parameters of ``main``, typed by their values.
        tools: Names of the tools that it called.
        description: What it does, in one line.

    Raises:
        UnfitProgram: the text can't be the body of a function.
    """
    try:
        module = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnfitProgram(f"its text is not Python: {error}") from None
    if any(isinstance(each, ast.Global) for each in ast.walk(module)):
        raise UnfitProgram("it uses `global`, which means something else in a function")
    parameters = ", ".join(f"{name}: {_derive_hint(value)}" for name, value in inputs.items())
    lines = ["import asyncio", "from typing import Any", "", "", f"async def {MAIN}({parameters}) -> Any:"]
    lines += _indent_body(code, module)
    return f"{_build_docstring(description, tools)}\n\n" + "\n".join(lines).rstrip() + "\n"


def _build_docstring(description: str, tools: Sequence[str]) -> str:
    said = description.replace("\\", "\\\\").replace('"', "'")
    needs = f"\n\n---\ntools: {json.dumps(list(tools))}\n---\n" if tools else ""
    return f'"""{said}{needs}"""'


def _indent_body(code: str, module: ast.Module) -> Iterator[str]:
    """Yield the text as the body of a function: indented, except inside texts of several lines."""
    inside = {
        line
        for each in ast.walk(module)
        if isinstance(each, ast.JoinedStr | ast.Constant) and each.end_lineno is not None
        for line in range(each.lineno + 1, each.end_lineno + 1)
    }
    last = module.body[-1] if module.body else None
    value = last if isinstance(last, ast.Expr) else None
    for number, line in enumerate(code.splitlines(), 1):
        if value is not None and number == value.lineno:
            # Columns of the syntax tree count bytes.
            at = len(line.encode()[: value.col_offset].decode())
            line = f"{line[:at]}return {line[at:]}"
        yield line if number in inside or not line.strip() else _INDENT + line
    if not module.body:
        yield f"{_INDENT}return None"


def _derive_hint(value: JsonValue) -> str:
    """Return the type of a parameter that such a value fits."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__name__
    if isinstance(value, list):
        hints = {_derive_hint(each) for each in value}
        return f"list[{hints.pop()}]" if len(hints) == 1 else "list[Any]"
    return "dict[str, Any]" if isinstance(value, dict) else "Any"


def build_file_text(
    name: str,
    arguments: Mapping[str, JsonValue],
    source: ProgramSource | None,
    tools: Sequence[str],
    description: str,
) -> str:
    """Return the checked text of a file for a program of a run.

    Args:
        name: What it is to be called.
        arguments: The arguments of its call.
        source: The saved program that it was; None = the call held its text.
        tools: Names of the tools that it called.
        description: What it does.

    Raises:
        UnfitProgram: it can't be saved.
        Malformed: the text would not be a saved program.
    """
    if source is not None:
        text = source.code.removesuffix(MAIN_CALL)
    else:
        inputs = arguments.get("inputs")
        given = inputs if isinstance(inputs, dict) else {}
        text = build_saved_text(str(arguments.get("code", "")), given, tools, description)
    parse_saved_text(Path(f"{name}{SUFFIX}"), text)
    return text
