"""Copies of a program's modules: made once, whatever opens at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from sessiontree.backends.ray.program_copy import ProgramCopies

THREADS = 16


def test_trees_that_open_at_once_share_one_copy(tmp_path: Path) -> None:
    """Also while the copies of killed programs are removed."""
    for number in range(20):
        dead = tmp_path / "program" / f"1-{number}-dead" / "package" / "deep"
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
