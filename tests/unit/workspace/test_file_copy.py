"""The walk that copies of children and templates of suites share: a link that is swapped in leads nowhere."""

from __future__ import annotations

import os
from pathlib import Path

from sessiontree.workspace.copied_files import FileCopy


class Swapping(FileCopy):
    """Copies everything; each entry is swapped for a link after it was seen, and before it is opened."""

    def __init__(self, source: Path, outside: Path) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.gone: list[str] = []
        self._source, self._outside = source, outside

    def takes(self, path: str, name: str, status: os.stat_result) -> bool:
        place = self._source / path
        self.seen.append(path)
        if place.is_dir():
            place.rename(self._outside / "moved")
            place.symlink_to(self._outside)
        else:
            place.unlink()
            place.symlink_to(self._outside / "secret")
        return True

    def note_gone(self, path: str) -> None:
        self.gone.append(path)

    def can_take_opened(self, status: os.stat_result) -> bool:
        return True

    def count(self, entries: int, more: int) -> None:
        pass

    def fill(self, old: int, new: int, status: os.stat_result) -> tuple[str, int]:
        return "", os.write(new, os.read(old, status.st_size))

    def note_file(self, path: str, new: int, status: os.stat_result, digest: str, size: int) -> None:
        pass

    def take_link(self, path: str, to: str, name: str, target: int) -> None:
        raise AssertionError("it was no link when it was seen")


def test_what_is_swapped_for_a_link_is_left_out(tmp_path: Path) -> None:
    """A file and a directory, both swapped for links to what is outside."""
    source, target, outside = tmp_path / "source", tmp_path / "target", tmp_path / "outside"
    for folder in (source / "folder", target, outside):
        folder.mkdir(parents=True)
    (source / "file").write_text("mine")
    (source / "folder" / "inner").write_text("mine")
    (outside / "secret").write_text("theirs")
    copy = Swapping(source, outside)
    copy.copy(str(source), str(target))
    assert copy.seen == copy.gone == ["file", "folder"]
    assert list(target.iterdir()) == []
