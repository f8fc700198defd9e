"""What a command names: the text about it changes with every change of that, and with nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.sandbox.named_files import named_files

Named = Callable[[str, Mapping[str, JsonValue], str], str]
COMMANDS = [
    "python a.py",
    "sh -c 'python a.py' &",
    "./a.py>b",
    "x --file=a.py",
    "cat 'a.py",
    "$(< a.py)",
    '"a.py"',
]


def _rewrite(path: Path) -> None:
    path.write_text("something else")


def _rewrite_as_if_nothing_was(path: Path) -> None:
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # a clock of the file system may tick slowly
        path.write_text("other")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def _point_elsewhere(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    path.unlink()
    path.symlink_to(copy)


CHANGES: list[Callable[[Path], None]] = [
    Path.unlink,
    _rewrite,
    _rewrite_as_if_nothing_was,
    _replace,
    _point_elsewhere,
]


def notices(named: Named, place: Path, command: str, change: Callable[[Path], None]) -> None:
    """Property: REL-L10, whatever is done to a file that a command names changes the text."""
    arguments: dict[str, JsonValue] = {"command": command}
    (place / "a.py").write_text("first")
    (place / "other.py").write_text("x")
    before = named(str(place), arguments, "command")
    (place / "other.py").write_text("y")
    (place / "new").mkdir()
    assert named(str(place), arguments, "command") == before
    change(place / "a.py")
    assert named(str(place), arguments, "command") != before


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("command", COMMANDS)
def test_a_changed_file_is_noticed(tmp_path: Path, command: str, change: Callable[[Path], None]) -> None:
    """Also one that kept its length and its time, and one that a copy took the place of."""
    notices(named_files, tmp_path, command, change)


def _by_words(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    return str(arguments[member])


def _by_size_and_time(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    path = Path(workspace, "a.py")
    return str((path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else None)


def _by_everything(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    return str([(each.name, each.stat().st_ctime_ns) for each in sorted(Path(workspace).iterdir())])


@pytest.mark.parametrize("broken", [_by_words, _by_size_and_time, _by_everything])
def test_planted_bugs_are_noticed(tmp_path: Path, broken: Named) -> None:
    """A text of words, or of size and time, misses a change; one of the whole directory sees too many."""
    with pytest.raises(AssertionError):
        for number, change in enumerate(CHANGES):
            place = tmp_path / str(number)
            place.mkdir()
            notices(broken, place, "python a.py", change)


def test_a_swapped_directory_is_noticed(tmp_path: Path) -> None:
    """REL-L9: what a command starts in is the directory, not its name."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "place").symlink_to("here")
    arguments: dict[str, JsonValue] = {"command": "ls", "workdir": "place"}
    before = named_files(str(tmp_path), arguments, "command")
    assert named_files(str(tmp_path), {"command": "ls", "workdir": "here"}, "command") == before
    (tmp_path / "place").unlink()
    (tmp_path / "place").symlink_to("there")
    assert named_files(str(tmp_path), arguments, "command") != before


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": 5},
        {"command": "ls", "workdir": 5},
        {"command": "\0 " + "x" * 5000 + " /etc/passwd ../x \ud800", "workdir": "\0"},
    ],
)
def test_nothing_is_said_of_what_is_not_there(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Nor of what lies outside the workspace."""
    assert named_files(str(tmp_path), arguments, "command") in {"", "{}"}
