"""A notebook's cell that opens a tree runs again: the former tree is closed, and the notebook is informed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.notebooks.kernel_fixtures import CellError, Kernel

FIRST = """
import logging
from sessiontree import FunctionModel, ScriptedModel, SessionTree, sync

told = []

class Keeping(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())

logging.getLogger("sessiontree").addHandler(Keeping())
options = {{"model": ScriptedModel(["done"]), "state_dir": {state!r}, "backend": "local"}}
workspace = {workspace!r}
"""
OPEN = {
    "awaited": "tree = SessionTree(workspace, **options)\nawait tree.start()\n",
    "at once": "tree = await SessionTree(workspace, **options).start()\n",
    "sync": "tree = sync.SessionTree(workspace, **options)\ntree.start()\n",
}
SEND = {
    "awaited": "await tree.main.send('x')",
    "at once": "await tree.main.send('x')",
    "sync": "tree.main.send('x')",
}
CLOSE = {"awaited": "await tree.close()", "at once": "await tree.close()", "sync": "tree.close()"}


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    """A kernel whose first cell imported what all use, and hears the log."""
    (tmp_path / "workspace").mkdir()
    with Kernel(is_forked=True) as kernel:
        kernel.run(FIRST.format(state=str(tmp_path / "state"), workspace=str(tmp_path / "workspace")))
        yield kernel


@pytest.mark.slow
@pytest.mark.parametrize("how", OPEN)
def test_former_tree_is_closed_and_told(kernel: Kernel, how: str) -> None:
    """As often as the cell is run; the last tree works, and there is one journal."""
    ids = []
    for _ in range(3):
        kernel.run(OPEN[how])
        ids.append(kernel.value("tree.tree_id"))
        assert kernel.value(SEND[how]) == "done"
    told = kernel.value("told")
    assert [line.partition(":")[0] for line in told] == [
        f"tree {each} was left open and is closed now" for each in ids[:2]
    ]
    assert {line.partition(": ")[2] for line in told} <= {"its cell runs again", "nobody holds it any more"}
    assert not kernel.value("__import__('pathlib').Path(options['state_dir'], 'journals').exists()")
    kernel.run(CLOSE[how])


@pytest.mark.slow
@pytest.mark.parametrize("how", OPEN)
def test_tree_that_a_variable_still_holds_is_kept(kernel: Kernel, how: str) -> None:
    """Both work, on one runtime."""
    kernel.run(OPEN[how])
    kernel.run("first = tree")
    kernel.run(OPEN[how])
    assert kernel.value(SEND[how]) == kernel.value(SEND[how].replace("tree", "first")) == "done"
    assert kernel.value("told") == []
    kernel.run(CLOSE[how].replace("tree", "first"))
    kernel.run(CLOSE[how])


@pytest.mark.slow
def test_trees_of_one_run_are_all_kept(kernel: Kernel) -> None:
    """A loop in a cell is no second run of it; another cell is another cell."""
    cell = "trees = [await SessionTree(workspace, **options).start() for _ in range(3)]"
    kernel.run(cell)
    kernel.run(OPEN["awaited"])
    assert kernel.value("told") == []
    kernel.run("await tree.close()\nfor each in trees: await each.close()")


@pytest.mark.slow
def test_former_tree_says_that_it_was_closed(kernel: Kernel) -> None:
    """What a list still holds is closed with its cell's next run, and says so when it is used."""
    kernel.run("kept = []")
    opening = "kept.append(await SessionTree(workspace, **options).start())"
    kernel.run(opening)
    kernel.run(opening)
    assert kernel.value("len(told)") == 1
    with pytest.raises(CellError, match="the tree is not open"):
        kernel.run("await kept[0].main.send('x')")
    assert kernel.value("await kept[1].main.send('x')") == "done"
    kernel.run("await kept[1].close()")


@pytest.mark.slow
def test_cell_that_resumes_may_be_run_again(kernel: Kernel) -> None:
    """The open tree is let go first."""
    kernel.run(OPEN["awaited"])
    kernel.run("tree_id = tree.tree_id\nawait tree.close()")
    again = "options.pop('model', None)\n"
    cell = f"{again}tree = await SessionTree.resume(tree_id, model=ScriptedModel(['a', 'b', 'c']), **options)"
    kernel.run(cell)
    kernel.run(cell)
    assert kernel.value("len(told)") == 1
    kernel.run("await tree.close()")
