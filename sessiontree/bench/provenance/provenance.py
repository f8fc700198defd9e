"""The provenance of a run's rows: the code and the settings that made them, by name.

What is here is compared before a run goes on. Where, when and by which command a run was worked on is in
``circumstances.py``: it is recorded, and never a reason to refuse.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

from sessiontree import AgentSpec, ModelLike
from sessiontree.api.options.app import APP_MEMBERS, take_app
from sessiontree.bench.provenance.code_digests import (
    digest_of_code,
    digest_of_module,
    digest_of_template,
    digest_of_text,
    find_file,
)
from sessiontree.bench.provenance.module_tree import ModuleTree
from sessiontree.bench.suite.suite import Sample, SuiteDefinition, read_tree_options
from sessiontree.bench.suite.workspaces import find_template
from sessiontree.version import VERSION

_MODEL_MEMBERS: Final = ("name", "base_url", "context_tokens")


def collect_provenance(
    suite: SuiteDefinition, samples: Iterable[Sample], model: ModelLike | None, settings: Mapping[str, object]
) -> dict[str, str]:
    """Return the code and the settings of a command by name. Blocks: it reads the suite's files.

    Names are ``sessiontree``, ``python``, ``package NAME``, ``module FILE``, ``solver NAME``,
    ``scorer NAME``, ``tree NAME``, ``tool NAME``, ``agent NAME``, ``template NAME``, ``environment FILE``,
    ``model NAME`` and the settings. A value is a release, a digest or a setting.

    Args:
        suite: The suite.
        samples: The samples of the command, whose templates count.
        model: The model that answers.
        settings: Settings of the run that count, by name: JSON values.
    """
    tree = ModuleTree(_list_files(suite), suite.folder)
    facts = {"sessiontree": VERSION, "python": platform.python_version()}
    facts |= {f"package {name}": release for name, release in tree.list_releases().items()}
    facts |= {f"module {name}": digest_of_module(path) for name, path in sorted(tree.files.items())}
    facts |= dict(_collect_code_facts(suite))
    facts |= dict(_collect_tree_facts(suite))
    facts |= dict(_collect_template_facts(suite, samples))
    if suite.env is not None:
        facts[f"environment {suite.env.name}"] = digest_of_text(suite.env.read_text("utf-8"))
    facts |= dict(_collect_model_facts(model))
    return facts | {name: json.dumps(value) for name, value in settings.items()}


def _list_files(suite: SuiteDefinition) -> list[Path]:
    """Return the files that define the suite and its functions."""
    values: list[object] = [suite.solver, *suite.scorers.values(), *suite.models.values()]
    values += [each for each in (suite.tree, suite.samples) if callable(each)]
    values += _get_app(suite).tools
    found = {file for file in map(find_file, values) if file is not None}
    if suite.file is not None:
        found.add(suite.file)
    return sorted(found)


def _get_app(suite: SuiteDefinition) -> Any:
    """Return the app of a suite whose ``tree`` is not a function."""
    options = {} if callable(suite.tree) else read_tree_options(suite.tree, f"suite {suite.name!r}: tree has")
    return take_app(options.get("app"), options)


def _collect_code_facts(suite: SuiteDefinition) -> Iterator[tuple[str, str]]:
    solver = suite.solver
    if isinstance(solver, AgentSpec):
        yield "solver agent", _digest_agent(solver)
    else:
        yield f"solver {getattr(solver, '__qualname__', type(solver).__name__)}", digest_of_code(solver)
    for name, scorer in suite.scorers.items():
        yield f"scorer {name}", digest_of_code(scorer)


def _collect_tree_facts(suite: SuiteDefinition) -> Iterator[tuple[str, str]]:
    """Yield the tools, prompts and settings of each tree; those of a function are its code's."""
    if callable(suite.tree):
        yield (
            f"tree {getattr(suite.tree, '__qualname__', type(suite.tree).__name__)}",
            digest_of_code(suite.tree),
        )
        return
    app = _get_app(suite)
    for tool in app.tools:
        parameters = json.dumps(tool.Params.model_json_schema(), sort_keys=True)
        yield f"tool {tool.name}", digest_of_text(f"{tool.description}\n{parameters}\n{digest_of_code(tool)}")
    for name, agent in (app.agents or {}).items():
        yield f"agent {name}", _digest_agent(agent)
    given = read_tree_options(suite.tree, "tree has")
    for name, value in sorted(given.items()):
        if name not in APP_MEMBERS and name != "app":
            yield f"tree {name}", digest_of_code(value)


def _digest_agent(agent: AgentSpec) -> str:
    return digest_of_text(agent.model_dump_json(exclude={"source"}))


def _collect_template_facts(suite: SuiteDefinition, samples: Iterable[Sample]) -> Iterator[tuple[str, str]]:
    known: set[Path] = set()
    for sample in samples:
        template = find_template(suite, sample)
        if template is not None and template not in known:
            known.add(template)
            inside = template.is_relative_to(suite.folder)
            name = template.relative_to(suite.folder).as_posix() if inside else template.name
            yield f"template {name}", digest_of_template(template)


def _collect_model_facts(model: Any) -> Iterator[tuple[str, str]]:
    """Yield what identifies a model: no key, and nothing that only says how fast it is asked."""
    if isinstance(model, list | tuple):
        for each in model:
            yield from _collect_model_facts(each)
        return
    if model is None or isinstance(model, str):
        if model:
            yield f"model {model}", "by name"
        return
    shown = {name: _to_plain(getattr(model, name, None)) for name in _MODEL_MEMBERS}
    settings = {name: value for name, value in shown.items() if value is not None}
    said = settings.pop("name", type(model).__name__)
    function = getattr(model, "__dict__", {}).get("_function")
    if function is not None:
        settings["function"] = digest_of_code(function)
    elif not type(model).__module__.startswith("sessiontree."):
        settings["class"] = digest_of_code(type(model))
    yield f"model {said}", json.dumps(settings, sort_keys=True)


def _to_plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value if isinstance(value, str | int | float | bool) else None
