"""What a command sees: an interpreter in the workspace, and the order of what is upon what."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.sandbox.commands.command_bounds import Bounds
from sessiontree.sandbox.commands.environment import (
    STAND_IN,
    SYSTEM_PATH,
    Interpreter,
    get_running_interpreter,
    list_program_folders,
    mount_words,
)
from tests.example_fixtures import examples

PROGRAM = """
import asyncio, pathlib, sys
from sessiontree.sandbox import CommandShell
shell = CommandShell(pathlib.Path(sys.argv[1]))
print(asyncio.run(shell.run(sys.argv[2], timeout_s=60)).head, end="")
"""
NAMES = st.lists(st.sampled_from("abc"), max_size=4).map("/".join)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a virtual environment in it that somebody put a program into."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    for folder in (tmp_path, tmp_path / "env" / "bin"):
        (folder / "ls").write_text("#!/bin/sh\necho shadowed\n")
        (folder / "ls").chmod(0o755)
    return tmp_path


def run_from_within(workspace: Path, command: str) -> str:
    """Run a command by a runtime whose own interpreter is the one in the workspace."""
    places = [path for path in sys.path if path]
    done = subprocess.run(
        [workspace / "env" / "bin" / "python", "-c", PROGRAM, workspace, command],
        env={"PATH": os.defpath, "PYTHONPATH": ":".join(places), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_interpreter_in_the_workspace_is_used_and_can_not_be_changed(workspace: Path) -> None:
    """It is the runtime's own next time; what is next to it shadows nothing."""
    told = run_from_within(workspace, "python -c 'import sys; print(sys.prefix, sys.base_prefix)'; ls -d env")
    assert told == f"{STAND_IN} {sys.base_prefix}\nenv\n"
    command = "touch env/new; echo x >>env/pyvenv.cfg; mv env other; rm -rf env"
    run_from_within(workspace, command)
    assert (workspace / "env" / "bin" / "python").exists()
    assert "x" not in (workspace / "env" / "pyvenv.cfg").read_text().splitlines()
    assert not (workspace / "env" / "new").exists()


def order_of(words: list[str]) -> list[str]:
    """Return the places of mounts in the order they are made."""
    sizes = {"--bind": 2, "--ro-bind": 2, "--tmpfs": 1, "--symlink": 2}
    return [words[index + sizes[word]] for index, word in enumerate(words) if word in sizes]


@pytest.mark.slow
@settings(max_examples=examples(200), derandomize=True, database=None)
@given(hidden=st.lists(NAMES, max_size=4), prefix=NAMES)
def test_deeper_places_lie_upon_shallower_ones(
    tmp_path_factory: pytest.TempPathFactory, hidden: list[str], prefix: str
) -> None:
    """Every hidden place that exists is covered after all that holds it, and all on the way is pinned."""
    top = tmp_path_factory.getbasetemp() / "tree"
    for path in (*hidden, prefix):
        (top / path).mkdir(parents=True, exist_ok=True)
    workspace = str(top)
    covered = [str(top / path) for path in hidden if path and path != prefix]
    home = str(top / prefix) if prefix else "/opt/none"
    interpreter = Interpreter(f"{home}/bin/python", f"{home}/bin/python", (home,), f"{home}/bin")
    words = mount_words(workspace, covered, interpreter, Bounds())
    places = order_of(words)
    for place in covered:
        assert words[words.index("--remount-ro") - 1 :].count(place) >= 1
        made = places.index(place)
        assert all(places.index(other) < made for other in places if place.startswith(f"{other}/"))
        for way in Path(place).parents:
            if way.is_relative_to(top) and not way.is_relative_to(home):
                assert str(way) in places


def test_running_interpreter_is_this_one() -> None:
    """Its prefixes hold its program and its library."""
    found = get_running_interpreter()
    assert Path(found.real_program).samefile(sys.executable)
    outside = [prefix for prefix in (sys.prefix, sys.base_prefix) if not prefix.startswith("/usr")]
    assert {os.path.realpath(prefix) for prefix in outside} <= set(found.prefixes)


@pytest.mark.covers("REL-L31")
def test_nothing_of_the_workspace_comes_before_the_systems_programs() -> None:
    """Wherever the interpreter is."""
    inside = Interpreter("/w/e/bin/python", "/p/bin/python", ("/p", "/w/e"), "/w/e/bin")
    assert list_program_folders(inside, "/w") == (f"{STAND_IN}/bin", *SYSTEM_PATH, "/w/e/bin")
    assert list_program_folders(inside, "/v") == ("/w/e/bin", *SYSTEM_PATH)
