"""The words that start Python confined: quoting, what is refused, and the trial of them."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox import Jail, detect_level, jail, launcher, probe
from sessiontree.sandbox import build_py_executable as words_for

NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=12)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: Path("/x", *names))


LAUNCHED = ["-I", "-S", launcher.__file__]


def py_executable(asked: Jail, python: str | None = None) -> str:
    """Return the words of a confined process whose role and place do not matter."""
    return words_for("trial", Path("/"), asked, python)


def read_back(words: str) -> jail.Options:
    """Return what the launcher understands of the words, as a shell passes them."""
    parts = shlex.split(words)
    assert parts[:4] == [sys.executable, *LAUNCHED]
    start = launcher.parse(parts[4:])
    assert start.jail is not None
    assert start.words[-8:] == [*LAUNCHED, "--role", "trial", "--cwd", "/", "--run"]
    return jail.parse([*start.jail, "--", *start.words[:-8]])


def words_survive_the_shell(make: Callable[[Jail], str]) -> None:
    """Every path, however it is spelled, reaches the launcher as it was."""

    @settings(database=None, report_multiple_bugs=False)
    @given(st.lists(PATHS, max_size=2), st.lists(PATHS, max_size=2), st.booleans())
    def check(hidden: list[Path], listed: list[Path], is_required: bool) -> None:
        asked = Jail(
            hidden=tuple(hidden),
            listed=tuple(listed),
            secrets=tuple(("NAME", path) for path in listed),
            enforcement="required" if is_required else "best_effort",
        )
        found = read_back(make(asked))
        assert found.hidden == [str(path) for path in hidden]
        assert found.listed == [str(path) for path in listed]
        assert found.secrets == [f"NAME={path}" for path in listed]
        assert found.is_required is is_required
        assert found.command == [sys.executable]

    check()


def test_words_survive_the_shell() -> None:
    """Quotes, blanks, dollars, newlines and dashes in a path stay text."""
    words_survive_the_shell(py_executable)


@pytest.mark.slow
def test_words_without_quotes_are_found() -> None:
    """Planted bug: the words are joined as they are."""
    with pytest.raises((AssertionError, ValueError, jail.JailError, launcher.LaunchError)):
        words_survive_the_shell(lambda asked: " ".join(shlex.split(py_executable(asked))))


def test_shell_agrees_with_the_reading(tmp_path: Path) -> None:
    """The words stand behind ``exec`` in bash, and arguments may follow."""
    place = tmp_path / 'it\'s $HOME `x` \n "y"'
    place.mkdir()
    (place / "file").write_text("text")
    asked = Jail(hidden=(place,))
    program = "import json, sys; print(json.dumps(sys.argv[1:])); open(sys.argv[1])"
    tail = shlex.join(["-s", "-S", "-c", program, str(place / "file"), "a b"])
    done = subprocess.run(
        ["bash", "-c", f"exec {py_executable(asked)} {tail}"], capture_output=True, text=True, timeout=120
    )
    assert json.loads(done.stdout) == [str(place / "file"), "a b"]
    assert "PermissionError" in done.stderr


@pytest.mark.parametrize(
    "python", ["/usr/bin/python3", "uv run --python 3.11", "'/a b/python' -X dev", "python"]
)
def test_own_python_of_a_job_is_kept_as_it_is(python: str) -> None:
    """What the job starts Python with follows unchanged: words stay words."""
    assert read_back(py_executable(Jail(), python)).command == shlex.split(python)


@pytest.mark.parametrize(
    "python",
    [
        "",
        " ",
        "a; b",
        "a && b",
        "a | b",
        "a & b",
        "a\nb",
        "a `b`",
        "a $(b)",
        'a "$(b)"',
        "a > b",
        "a 'b",
        "a # b",
    ],
)
def test_more_than_one_command_is_refused(python: str) -> None:
    """Whatever follows the first command would run outside."""
    with pytest.raises(ConfigError, match="py_executable"):
        py_executable(Jail(), python)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Jail(hidden=(Path("state"),)), "relative"),
        (lambda: Jail(writable=(Path("logs"),)), "relative"),
        (lambda: Jail(listed=(Path(),)), "relative"),
        (lambda: Jail(secrets=(("TOKEN", Path("token")),)), "relative"),
        (lambda: Jail(hidden=(Path("/"),)), "can't hide '/'"),
        (lambda: Jail(hidden=(Path("/x/.."),)), "can't hide '/'"),
        (lambda: Jail(hidden=(Path("/x/state"),), writable=(Path("/x"),)), "writable"),
        (lambda: Jail(hidden=(Path("/x"),), writable=(Path("/x"),)), "writable"),
        (lambda: Jail(hidden=(Path("/\udc80"),)), "UTF-8"),
        (lambda: Jail(hidden=(Path("/a\0b"),)), "zero byte"),
        (lambda: Jail(secrets=(("A=B", Path("/x")),)), "environment variable"),
        (lambda: Jail(secrets=(("", Path("/x")),)), "environment variable"),
    ],
)
def test_jail_that_can_not_hold_is_refused(make: Callable[[], Jail], reason: str) -> None:
    """A wrong wish is a typed error before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        make()


def test_logs_may_lie_in_a_hidden_directory(tmp_path: Path) -> None:
    """Writable inside hidden is no contradiction: what is writable is readable again, and nothing else."""
    (tmp_path / "state" / "logs").mkdir(parents=True)
    wished = Jail(hidden=(tmp_path / "state",), writable=(tmp_path / "state" / "logs",))
    assert probe(wished) == detect_level()


def test_probe_tells_the_level(tmp_path: Path) -> None:
    """The trial starts what would be started, and reports what it got."""
    assert probe(Jail(hidden=(tmp_path / "state",))) == detect_level()
    assert probe(Jail(), shlex.quote(sys.executable)) == detect_level()


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_probe_says_why_nothing_started(python: str) -> None:
    """What would hang an actor system for ever is an error before it."""
    with pytest.raises(ConfigError, match="can't start a confined process"):
        probe(Jail(), python)


def test_probe_finds_a_missing_directory() -> None:
    """A writable directory that does not exist is named."""
    with pytest.raises(ConfigError, match="No such file"):
        probe(Jail(writable=(Path("/no/such/directory"),)))


def test_probe_finds_an_interpreter_that_is_hidden() -> None:
    """Hiding the interpreter itself leaves nothing to start."""
    with pytest.raises(ConfigError, match="can't start"):
        probe(Jail(hidden=(Path(sys.executable).resolve(),)))


def test_given_variables_are_set_and_others_are_not_kept(tmp_path: Path) -> None:
    """Those of the file, named ones and harmless ones are there, whatever their values; nothing else is."""
    passed = tmp_path / "it's $HOME"
    passed.write_bytes(b"ONE=a=b\n\0TWO=\xff\0THREE=not named\0no variable\0")
    words = words_for("host", tmp_path, None, keep=["ONE", "TWO", "FOUR"], given=passed)
    program = "import os, sys; sys.stdout.write(repr(sorted(os.environb.items())))"
    done = subprocess.run(
        ["bash", "-c", f"exec {words} -c {shlex.quote(program)}"],
        env={"PATH": os.environ["PATH"], "ONE": "old", "FOUR": "kept", "FIVE": "not named"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(ast.literal_eval(done.stdout))
    assert {name: found.get(name) for name in (b"ONE", b"TWO", b"FOUR")} == {
        b"ONE": b"a=b\n", b"TWO": b"\xff", b"FOUR": b"kept",
    }  # fmt: skip
    assert b"PATH" in found
    assert not found.keys() & {b"THREE", b"FIVE", b"no variable"}


def test_file_of_variables_that_is_gone_is_reported(tmp_path: Path) -> None:
    """A host without its variables does not start."""
    words = words_for("host", tmp_path, None, keep=["ONE"], given=tmp_path / "gone")
    done = subprocess.run(["bash", "-c", f"exec {words} -c ''"], capture_output=True, text=True, check=False)
    assert done.returncode == launcher.UNUSABLE
    assert "can't read the variables in" in done.stderr
