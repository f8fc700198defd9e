"""Copies of a program's modules: made once, whatever opens at the same time."""

from __future__ import annotations

import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

from sessiontree import ConfigError
from sessiontree.backends.ray.engine.program_copy import CopiedFile, ProgramCopies

THREADS = 16


def test_trees_that_open_at_once_share_one_copy(tmp_path: Path) -> None:
    """Also while the copies of killed programs are removed."""
    for number in range(20):
        later = 10**12 + number  # no process began then
        dead = tmp_path / "program" / f"1-{later}-dead" / "package" / "deep"
        dead.mkdir(parents=True)
        (dead / "module.py").touch(0o400)
        dead.chmod(0o500)
    copies, start = ProgramCopies(tmp_path), Barrier(THREADS)

    def open_tree() -> Path:
        start.wait()
        return copies.root()

    with ThreadPoolExecutor(THREADS) as pool:
        roots = {each.result() for each in [pool.submit(open_tree) for _ in range(THREADS)]}
    assert len(roots) == 1
    assert list((tmp_path / "program").iterdir()) == list(roots)
    copies.close()
    assert not (tmp_path / "program").exists()


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Import a module that is next to the program; return its file."""
    file = tmp_path / "beside" / "own_module_for_copies.py"
    file.parent.mkdir()
    file.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    monkeypatch.setitem(sys.modules, file.stem, importlib.import_module(file.stem))
    return file


def test_each_copy_holds_the_modules_as_they_are_then(tmp_path: Path, own_module: Path) -> None:
    """The place of a module is found once; its content is looked at again."""
    copies = ProgramCopies(tmp_path)
    first = copies.take()
    assert first is not None
    assert copies.take() == first
    own_module.write_text("VALUE = 22\n")
    second = copies.take()
    assert second is not None
    assert (first / own_module.name).read_text() == "VALUE = 1\n"
    assert (second / own_module.name).read_text() == "VALUE = 22\n"
    copies.close()


def test_links_of_a_loaded_module_are_resolved_once(
    tmp_path: Path, own_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program has thousands of modules, and may open thousands of trees."""
    copies = ProgramCopies(tmp_path)
    copies.take()
    resolved: list[str] = []
    realpath = os.path.realpath

    def counted(path: str, **options: bool) -> str:
        resolved.append(path)
        return realpath(path, **options)

    monkeypatch.setattr("os.path.realpath", counted)
    copies.take()
    monkeypatch.undo()
    assert len(resolved) < len(sys.modules) / 4
    copies.close()


def test_installation_is_noticed_by_the_next_copy(
    tmp_path: Path, own_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the program with the same name is refused from then on."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.setattr("sessiontree.backends.ray.engine.program_copy.find_environment", lambda: [str(site)])
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    others = {name for name, module in sys.modules.items() if name != own_module.stem}
    monkeypatch.setattr("sessiontree.backends.ray.engine.program_copy._NEVER", frozenset(others))
    copies = ProgramCopies(tmp_path)
    assert copies.take() is not None
    (site / own_module.name).write_text("")
    with pytest.raises(ConfigError, match="installed with the same name"):
        copies.take()
    (site / own_module.name).unlink()
    assert copies.take() is not None
    copies.close()


def test_those_that_wait_for_a_copy_share_the_next_one(
    tmp_path: Path, own_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that began before a call does not count for it: the program may have changed in between."""
    copies, looks = ProgramCopies(tmp_path), []
    began, go_on = Event(), Event()

    def look() -> dict[str, CopiedFile]:
        looks.append(own_module.read_text())
        status = own_module.stat()
        began.set()
        assert go_on.wait(30)
        return {own_module.name: CopiedFile(str(own_module), status.st_size, status.st_mtime_ns)}

    monkeypatch.setattr("sessiontree.backends.ray.engine.program_copy.find_program_modules", look)
    with ThreadPoolExecutor(THREADS) as pool:
        first = pool.submit(copies.take)
        assert began.wait(30)
        own_module.write_text("VALUE = 22\n")
        others = [pool.submit(copies.take) for _ in range(THREADS - 1)]
        while copies._asked < THREADS:
            Event().wait(0.001)  # nothing else says that they wait
        go_on.set()
        found = {each.result() for each in others}
        first.result()
    assert looks == ["VALUE = 1\n", "VALUE = 22\n"]
    (shared,) = found
    assert shared is not None
    assert (shared / own_module.name).read_text() == "VALUE = 22\n"
    copies.close()
