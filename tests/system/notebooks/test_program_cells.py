"""``%%program`` in a real kernel: a cell runs in an open tree, with and without ``await``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.notebooks.jupyter_fixtures import jupyter_in

pytestmark = pytest.mark.slow
OFFERED = """
from sessiontree import PolicyConfig, ToolPolicy
policy = PolicyConfig(tools=ToolPolicy(allow=("program", "read")))
model = FunctionModel(lambda request: "heard")
offered = dict(model=model, policy=policy, state_dir=options["state_dir"], backend="local")
"""


def test_cell_runs_as_a_program_of_the_open_tree(tmp_path: Path) -> None:
    """Its calls and its value are shown, its error is the cell's, and variables are its inputs."""
    with jupyter_in(tmp_path) as jupyter:
        place = str(jupyter.place / "workspace")
        (jupyter.place / "workspace" / "a.txt").write_text("hello\n")
        jupyter.run("%load_ext sessiontree\n" + OFFERED)
        assert jupyter.fail(jupyter.begin("%%program\n1")) == "ConfigError"
        jupyter.run(f"one = await SessionTree({place!r}, **offered).start()\nnumbers = [1, 2]")
        calls, value = jupyter.run("%%program ns=numbers word=x\n[await read(path='a.txt'), sum(ns), word]")
        assert "<td>read</td>" in calls["text/html"]
        assert value["text/plain"] == "['hello\\n', 3, 'x']"
        assert jupyter.fail(jupyter.begin("%%program\n1 / 0")) == "ExecutionError"
        jupyter.run(f"two = sync.SessionTree({place!r}, **offered).start()")
        assert jupyter.fail(jupyter.begin("%%program\n1")) == "ConfigError"
        two = jupyter.value("two.tree_id").strip("'")
        *_, value = jupyter.run(f"%%program --tree {two}\nprint('said')\n'a text'")
        assert value["text/plain"] == "'a text'"
        jupyter.run("two.close()\nawait one.close()")
