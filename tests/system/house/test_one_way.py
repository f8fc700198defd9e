"""One way leads to a tool's body (REL-L53): nothing else runs a tool or makes what tools are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

DOORS = {
    "execute": {
        "dispatch/dispatcher.py",
        "runtime/runner/calls/tool_calls.py",
        "testing/context.py",
        "testing/tool_contract.py",
    },
    "ToolContext": {"dispatch/dispatcher.py", "testing/context.py"},
    "Dispatcher": {"runtime/host/host.py"},
}
"""What is called, and who calls it. The dispatcher runs tools; a host makes the dispatcher, and what keeps
deadlines asks it. Tests of a tool alone have no dispatcher, and nothing but what they are handed. A tool that
is watched for its contract is called by the dispatcher, and calls the tool that it copies."""
BY_NAME = {"getattr", "methodcaller", "attrgetter"}
"""What finds a method by a text."""
SQL = (
    "journal/",
    "api/trajectories/step_spool.py",
    "bench/adapters/inspect_log.py",
    "bench/ledger/ledger.py",
    "bench/ledger/ledger_tables.py",
    "bench/ledger/ledger_thread.py",
    "bench/ledger/retry_samples.py",
    "bench/ledger/run_log.py",
    "bench/results/recorded_run.py",
    "programs/tool_index.py",
)
"""Where ``execute`` is a word of the database."""


def doors_of(module: str, source: str) -> Iterator[str]:
    """Yield what a module says of the ways to a tool's body: ``<module> calls <name>``, or names it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in DOORS and not (called == "execute" and module.startswith(SQL)):
                yield f"{module} calls {called}"
            if called in BY_NAME and any(
                isinstance(arg, ast.Constant) and arg.value in DOORS for arg in node.args
            ):
                yield f"{module} names a door"
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if name.name in DOORS and name.asname not in {None, name.name}:
                    yield f"{module} names a door"


def known() -> set[str]:
    """Return what may be said."""
    return {f"{module} calls {name}" for name, modules in DOORS.items() for module in modules}


@pytest.mark.covers("REL-L53")
def test_nothing_reaches_a_tool_beside_the_dispatcher(shipped_modules: list[Path], checkout: Path) -> None:
    """Every call in the two packages is looked at; those that lead to tools are the ones named above."""
    found = {
        door
        for path in shipped_modules
        for door in doors_of(
            path.relative_to(checkout).as_posix().removeprefix("sessiontree/"), path.read_text("utf-8")
        )
    }
    assert found == known()


@pytest.mark.covers("REL-L53")
@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("runtime/shortcut.py", "async def f(tool, ctx):\n    return await tool.execute({}, ctx)"),
        ("tools/sessiontree_tools/nested.py", "context = ToolContext(rights, 'c', signals)"),
        ("api/tree/session_handle.py", "table = Dispatcher(tools, held, rights, policy)"),
        ("survey/model.py", "run = getattr(tool, 'execute')"),
        ("survey/model.py", "from sessiontree.contracts.tools.context import ToolContext as Context"),
        (
            "cli/tools.py",
            "import operator\nrun = operator.methodcaller('execute')\nx = methodcaller('execute')",
        ),
    ],
)
def test_planted_way_around_is_found(module: str, planted: str) -> None:
    """A helper with a way of its own would pass neither policy nor hooks nor approvals."""
    assert set(doors_of(module, planted)) - known()


def test_database_s_word_is_another_one() -> None:
    """Statements are executed too, by the journal alone."""
    statement = "connection.execute('COMMIT')"
    assert list(doors_of("journal/commit.py", statement)) == []
    assert list(doors_of("runtime/commit.py", statement)) == ["runtime/commit.py calls execute"]
