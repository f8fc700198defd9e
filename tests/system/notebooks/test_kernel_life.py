"""What a kernel leaves behind, and what its shell knows of the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.notebooks.jupyter_fixtures import OPEN, SEND, WIDGET, Jupyter, jupyter_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One kernel for the tests that leave it as it is."""
    with jupyter_in(tmp_path_factory.mktemp("kernel")) as jupyter:
        jupyter.run("%load_ext sessiontree")
        yield jupyter


def test_percent_tree_shows_the_live_trees(jupyter: Jupyter) -> None:
    """All of them, or by id; without one it says what to do."""
    workspace = str(jupyter.place / "workspace")
    assert jupyter.fail(jupyter.begin("%tree")) == "ConfigError"
    jupyter.run(OPEN["async"].format(workspace=workspace).replace("tree", "first"))
    jupyter.run(OPEN["sync"].format(workspace=workspace))
    both = jupyter.run("%tree")
    assert len({bundle[WIDGET]["model_id"] for bundle in both if WIDGET in bundle}) == 2
    first = jupyter.value("first.tree_id").strip("'")
    one, _ = jupyter.run(f"%tree {first[:9]}")
    assert first in one["text/plain"]
    (page,) = jupyter.run(f"%tree --page {first}")
    assert page["text/plain"].startswith("open http://127.0.0.1:")
    jupyter.run("tree.close()\nawait first.close()")


def test_handle_a_receipt_and_a_bar_show_themselves(jupyter: Jupyter) -> None:
    """Of children too; a bar ends where all have ended."""
    workspace = str(jupyter.place / "workspace")
    jupyter.run(OPEN["async"].format(workspace=workspace))
    bar, results = jupyter.run("await tree.main.map('worker', ['a', 'b'], progress=True)")
    assert bar["text/plain"] == "0 of 2 workers"
    assert "<td>main/w2</td>" in results["text/html"]
    *_, updated = [told["content"] for told in jupyter.heard if told["msg_type"] == "update_display_data"]
    assert updated["data"]["text/plain"] == "2 of 2 workers"
    handle, widget = jupyter.run("tree.session('main/w1')")
    assert WIDGET in widget
    assert "main/w2" not in handle["text/html"]
    (receipt,) = jupyter.run("await tree.cancel()")
    assert "<td>cancelled</td>" in receipt["text/html"]
    assert "pip install pandas" in jupyter.value(
        "from sessiontree import ConfigError\n"
        "try: tree.usage().to_pandas(); raised = ''\n"
        "except ConfigError as error: raised = str(error)\n"
        "raised"
    )
    jupyter.run("await tree.close()")


@pytest.mark.parametrize("face", ["async", "sync"])
@pytest.mark.parametrize("backend", ["local", "ray"])
def test_restart_leaves_no_process(face: str, backend: str, tmp_path: Path) -> None:
    """Of a kernel whose tree is open and waits for a person; on each backend."""
    with jupyter_in(tmp_path) as jupyter:
        jupyter.run(f"options['backend'] = {backend!r}")
        jupyter.run(OPEN[face].format(workspace=str(tmp_path / "workspace")))
        jupyter.displayed(jupyter.begin(SEND[face].format("publish a.txt")))
        before = jupyter.processes()
        assert len(before) > 1 or backend == "local"
        jupyter.restart()
        _, alive = psutil.wait_procs(before, timeout=30)
        assert alive == []
        assert jupyter.value("1 + 1") == "2"
