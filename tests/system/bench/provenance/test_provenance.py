"""Provenance: what counts as other code, what does not, and what a run says of it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import pytest

from sessiontree import AgentSpec, App, FunctionModel, PermissionTier, tool
from sessiontree.bench import Sample, Suite
from sessiontree.bench.provenance.changes import describe_changes
from sessiontree.bench.provenance.circumstances import read_git_state
from sessiontree.bench.provenance.code_digests import digest_of_code, digest_of_module, digest_of_template
from sessiontree.bench.provenance.module_tree import ModuleTree
from sessiontree.bench.provenance.provenance import collect_provenance
from tests.system.bench.suite_fixtures import exact, solve


def of_source(source: str, name: str = "scorer", **names: Any) -> Any:
    """Return a function of a source text, as a notebook has it: no file holds it."""
    space: dict[str, Any] = {"__name__": "cell", **names}
    exec(compile(source, "<cell>", "exec"), space)  # noqa: S102 - the test's own text
    return space[name]


def threshold(limit: float) -> Any:
    """Return a function with something enclosed."""

    def scorer(attempt: Any) -> bool:
        return bool(attempt.output > limit)

    return scorer


def counting() -> Any:
    """Return a function that counts its calls."""
    calls, seen = 0, []

    def scorer(attempt: Any) -> bool:
        nonlocal calls
        calls += 1
        seen.append(attempt)
        return True

    return scorer


@pytest.mark.covers("SUI14")
def test_code_counts_and_its_looks_do_not() -> None:
    """Comments and lines change nothing; a constant, a default, a called function, an enclosed value do."""
    plain = digest_of_code(of_source("def scorer(a):\n    return a.output == 1\n"))
    assert digest_of_code(of_source("\n\ndef scorer(a):  # same\n    return (a.output == 1)\n")) == plain
    assert digest_of_code(of_source("def scorer(a):\n    return a.output == 2\n")) != plain
    assert digest_of_code(of_source("def scorer(a, b=1):\n    return a.output == 1\n")) != plain
    called = "def of(a):\n    return {}\ndef scorer(a):\n    return of(a)\n"
    assert len({digest_of_code(of_source(called.format(value))) for value in (1, 2)}) == 2
    assert digest_of_code(threshold(0.5)) == digest_of_code(threshold(0.5)) != digest_of_code(threshold(0.6))
    half = functools.partial(exact, cast("Any", 1))
    assert (
        digest_of_code(half)
        == digest_of_code(functools.partial(exact, cast("Any", 1)))
        != digest_of_code(exact)
    )


def test_what_changes_while_it_is_used_does_not_count() -> None:
    """A counter and a list of calls are no code."""
    scorer = counting()
    before = digest_of_code(scorer)
    scorer(None)
    assert digest_of_code(scorer) == before


def test_module_tree_holds_what_a_suite_imports(tmp_path: Path) -> None:
    """Own files, also those that are imported late or relatively; no installed ones, and no comments."""
    (tmp_path / "package").mkdir()
    for name, text in {
        "suite.py": "import os, pytest\nimport helper\ndef solve():\n    from package import tools\n",
        "helper.py": "import json\n",
        "other.py": "",
        "package/__init__.py": "",
        "package/tools.py": "from . import inner\n",
        "package/inner.py": "import sessiontree\n",
    }.items():
        (tmp_path / name).write_text(text)
    tree = ModuleTree([tmp_path / "suite.py"], tmp_path)
    own = {"suite.py", "helper.py", "package/__init__.py", "package/tools.py", "package/inner.py"}
    assert set(tree.files) == own
    assert list(tree.list_releases()) == ["pytest"]
    before = digest_of_module(tmp_path / "helper.py")
    (tmp_path / "helper.py").write_text("# why\nimport json  # what\n")
    assert digest_of_module(tmp_path / "helper.py") == before
    (tmp_path / "helper.py").write_text("import ast\n")
    assert digest_of_module(tmp_path / "helper.py") != before
    (tmp_path / "helper.py").write_text("def (")
    assert digest_of_module(tmp_path / "helper.py") != before


def made_suite(folder: Path, **changes: Any) -> Suite:
    """Return a suite with one of everything."""

    def add(a: int) -> int:
        """Add one."""
        return a + 1

    adder = changes.pop("tool", tool(tier=PermissionTier.WORKSPACE)(add))
    prompt = changes.pop("prompt", "Be brief.")
    app = App(tools=[adder], agents={"default": AgentSpec(prompt=prompt)}, builtin_tools=False)
    given: dict[str, Any] = {
        "solver": solve,
        "scorers": exact,
        "model": FunctionModel(lambda _: "", name="m"),
        **changes,
    }
    samples = [Sample("a", files="template")]
    return Suite("s", samples, given.pop("solver"), given.pop("scorers"), tree=app, folder=folder, **given)


def facts_of(suite: Suite, limit_s: float = 5.0) -> dict[str, str]:
    """Return the provenance of a suite."""
    return collect_provenance(suite, suite.samples, suite.model, {"sample_timeout_s": limit_s})  # type: ignore[arg-type]


@pytest.mark.covers("SUI14")
def test_each_part_is_named(tmp_path: Path) -> None:
    """Solver, scorers, tools, prompts, templates, model, environment and settings, each by its name."""
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "a").write_text("one")
    (tmp_path / "lock.txt").write_text("x==1\n")
    before = facts_of(made_suite(tmp_path, env="lock.txt"))

    def changed(suite: Suite, limit_s: float = 5.0) -> list[str]:
        found = describe_changes(before, facts_of(suite, limit_s))
        return [
            " ".join(each.split()[:2]) for each in found if not each.startswith("environment lock.txt is")
        ]

    def other(a: int) -> int:
        """Add two."""
        return a + 2

    other.__name__ = "add"
    assert changed(made_suite(tmp_path)) == []
    assert changed(made_suite(tmp_path), 9.0) == ["sample_timeout_s was"]
    assert changed(made_suite(tmp_path, prompt="Be long.")) == ["agent default"]
    assert changed(made_suite(tmp_path, tool=tool(tier=PermissionTier.WORKSPACE)(other))) == ["tool add"]
    assert changed(made_suite(tmp_path, scorers=threshold(0.5))) == ["scorer exact", "scorer scorer"]
    assert changed(made_suite(tmp_path, model=FunctionModel(lambda _: "x", name="m"))) == ["model m"]
    (tmp_path / "lock.txt").write_text("x==2\n")
    assert describe_changes(before, facts_of(made_suite(tmp_path, env="lock.txt")))[0].startswith(
        "environment lock.txt was"
    )
    (tmp_path / "template" / "a").write_text("two")
    assert changed(made_suite(tmp_path)) == ["template template"]


def test_template_counts_by_names_and_contents(tmp_path: Path) -> None:
    """Not by times; a link counts by where it leads."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").write_text("one")
    before = digest_of_template(tmp_path / "t")
    (tmp_path / "t" / "a").touch()
    assert digest_of_template(tmp_path / "t") == before
    (tmp_path / "t" / "b").symlink_to("a")
    assert digest_of_template(tmp_path / "t") != before


def test_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    """It is not an error."""
    assert read_git_state(tmp_path) == {"git_commit": "", "git_dirty": None}
