"""``sessiontree run --program``: which saved program is meant, its inputs, and the right to run it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessiontree import ConfigError, Configuration, SessionResult, SessionTree, ValidationError
from sessiontree.api.programs.program_files import read_programs
from sessiontree.api.programs.program_grants import grant_program
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.cli.configured_tree import build_tree_options, check_workspace, load_configuration
from sessiontree.cli.run import TYPED, TaskRun, make_terminal_channel
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.settings.settings import suggest_names
from sessiontree.contracts.tools.program_tool import SavedProgram, SavedText
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.compiled import compile_tool


def run_program(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    program: str | None,
    inputs: Sequence[str] | None,
    task: str | None,
    tools: str | None,
    result_schema: Path | None,
    attach: Sequence[Path] | None,
    model: str | None,
    agent: str | None,
    workspace: Path | None,
    approve: str | None,
    max_cost: float | None,
    config: Path | None,
    state_dir: Path | None,
    backend: BackendName,
    as_json: bool,
    quiet: bool,
    view: bool,
) -> int:
    """Open a tree, run a saved program in a Branch of its Main, show the value and return the exit code.

    Its options are those of :func:`sessiontree.cli.run.run`; a program takes no task, and has its own tools,
    types and files. The Branch makes it durable: ``sessiontree resume`` goes on with it.

    Raises:
        SessionTreeError: it can't begin; nothing was changed.
    """
    named = {"a task": task, "--tools": tools, "--result-schema": result_schema, "--attach": attach}
    _check_alone(program, [name for name, value in named.items() if value])
    root = check_workspace(workspace)
    configured = load_configuration(config, root)
    saved = find_saved(configured, program or "")
    given = parse_inputs(saved, inputs or ())
    options = build_tree_options(
        configured, model=model, agent=agent, approve=approve, max_cost=max_cost, needs_model=False
    )
    grant_program(options, saved.name)
    progress = RichScreen(sys.stderr, is_quiet=quiet or as_json)
    tree = SessionTree(
        root,
        **options,
        channel=make_terminal_channel(progress, as_json),
        state_dir=state_dir,
        backend=backend,
        purpose=f"{TYPED}program {saved.name}",
    )
    task_run = TaskRun(screen, progress, tree.state_dir, as_json, config=config, has_page=view)

    async def order(tree: SessionTree) -> SessionResult[Any]:
        what = f"Run {saved.name}."
        child = await tree.main.spawn("branch", what, program=saved.name, inputs=given, budget=saved.budget)
        return await child.result()

    return task_run.carry_out(tree.start, order)


def _check_alone(program: str | None, others: Sequence[str]) -> None:
    if program is None:
        raise ConfigError("--input is given without --program; name the program, or write it in the task")
    if others:
        raise ConfigError(f"--program and {others[0]} are given; a program takes --input name=value alone")


def find_saved(configured: Configuration, name: str) -> SavedText:
    """Return the saved program of a name.

    Raises:
        ConfigError: none has the name, or its file can't be used; says which, and the line.
    """
    folder = configured.programs_folder
    found, refused = read_programs(folder)
    for file in refused:
        if file.path.stem == name:
            raise ConfigError(f"--program {name!r} can't be used: {file}")
    if name not in found:
        raise ConfigError(
            f"--program: no program {name!r} is saved in {folder}; {suggest_names(name, found)}"
        )
    return found[name]


def parse_inputs(saved: SavedText, given: Sequence[str]) -> dict[str, JsonValue]:
    """Return the inputs of a saved program from ``name=value`` options.

    A value is JSON where it parses; where the parameter takes text and no such JSON, it is the text.

    Raises:
        ConfigError: an option has no ``=``, is given twice, or does not fit the program's ``main``.
    """
    texts: dict[str, str] = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise ConfigError(f"--input {each!r} has no name and value; write --input name=value")
        if name in texts:
            raise ConfigError(f"--input {name} is given twice; give it once")
        texts[name] = value
    properties = saved.parameters["properties"]
    schemas: dict[str, Any] = properties if isinstance(properties, dict) else {}
    values = {name: _parse_value(text, schemas.get(name)) for name, text in texts.items()}
    try:
        _, final = compile_tool(SavedProgram(saved)).validate(values)
    except ValidationError as error:
        where = f" (at {error.field})" if error.field else ""
        raise ConfigError(f"--input of program {saved.name!r}: {error}{where}") from None
    return final


def _parse_value(text: str, schema: object) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    takes = _find_types(schema)
    return text if "string" in takes and _name_type(value) not in takes else value


def _find_types(schema: object) -> set[str]:
    """Return the JSON types that a parameter takes; a type that includes whole numbers names both."""
    if not isinstance(schema, dict):
        return set()
    found = (
        {str(schema["type"])} if "type" in schema else {_name_type(each) for each in schema.get("enum", ())}
    )
    for each in schema.get("anyOf", ()):
        found |= _find_types(each)
    return found | ({"integer"} if "number" in found else set())


def _name_type(value: object) -> str:
    for kind, name in _NAMES:
        if isinstance(value, kind):
            return name
    return "null"


_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
