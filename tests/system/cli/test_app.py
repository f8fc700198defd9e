"""The command line itself: quick help, wrong usage, and every way a command can end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.version import VERSION
from tests.system.cli.command_fixtures import COMMAND, MAX_S, Program

PROBE = """
import json, sys
sys.argv = ["sessiontree", "--help"]
from sessiontree.cli.app import main
try:
    main()
except SystemExit as ended:
    assert ended.code in (0, None)
print(json.dumps(sorted(sys.modules)))
"""


def test_help_names_every_command_and_loads_none() -> None:
    """Help is written without the runtime, pydantic, rich or a database."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert not modules & {
        "sessiontree.api.runtime.runtime",
        "sessiontree.survey",
        "pydantic",
        "rich",
        "sqlite3",
    }
    for command in ("survey", "resume", "tree"):
        assert f"\n  {command} " in done.stdout


def test_version_is_the_package_s(program: Program) -> None:
    """``--version`` prints one line."""
    assert program.call("--version").out == f"sessiontree {VERSION}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("survey", "nowhere"), "ConfigError: workspace "),
        (("survey", "file"), "ConfigError: workspace "),
        (("survey", "room", "--approve", "perhaps"), "ConfigError: --approve 'perhaps' is not one of auto, "),
        (("survey", "room", "--backend", "abacus"), "ConfigError: backend 'abacus' is not one of "),
        (
            ("survey", "room", "--out", "../SURVEY.md"),
            "ConfigError: --out '../SURVEY.md' is not a path inside",
        ),
        (("survey", "room", "--out", "/tmp/SURVEY.md"), "ConfigError: --out '/tmp/SURVEY.md' is not a path"),
        (("survey", "room", "--out", ""), "ConfigError: --out '' is not a path inside"),
        (("survey", "room", "--state-dir", "room"), "ConfigError: --state-dir 'room' holds the directory"),
        (("survey", "room", "--state-dir", "."), "ConfigError: --state-dir '.' holds the directory"),
        (("survey", "room", "--state-dir", "file/below"), "JournalUnwritable: journal "),
        (("resume", "room"), "nothing ran here yet: no journal is here"),
        (("resume", "nowhere"), "nothing ran here yet: no journal is here"),
        (("tree", "room"), "nothing ran here yet: no journal is here"),
    ],
)
def test_wrong_argument_is_one_typed_line(
    program: Program, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    """What can't be begun ends with 2, where nothing ran with 1, and one line; the workspace is as before."""
    (tmp_path / "room").mkdir()
    (tmp_path / "file").touch()
    places = [tmp_path / word if word in {"room", "nowhere", "file"} else word for word in arguments]
    if "--state-dir" in arguments:
        index = arguments.index("--state-dir") + 1
        places[index] = tmp_path / arguments[index]
        error = error.replace(f"'{arguments[index]}'", f"'{places[index]}'")
    done = program.call(*places)
    assert done.code == (1 if error.startswith("nothing ran") else 2)
    assert done.err.startswith(f"sessiontree: {error}")
    assert len(done.err.splitlines()) == 1
    assert list((tmp_path / "room").iterdir()) == []


@pytest.mark.slow
def test_place_without_rights_is_one_typed_line(program: Program, tmp_path: Path) -> None:
    """A directory that may not be read, and a state directory that may not be made, are distinguished."""
    (tmp_path / "closed").mkdir(mode=0)
    done = program.run("survey", tmp_path / "closed", restricted=True)
    assert (done.code, done.err) == (
        2,
        (
            f"sessiontree: ConfigError: {str(tmp_path / 'closed')!r} can't be listed: permission denied; "
            "survey it as who may read it\n"
        ),
    )
    (tmp_path / "open").mkdir()
    state_dir = tmp_path / "closed" / "below"
    done = program.run("survey", tmp_path / "open", "--state-dir", state_dir, restricted=True)
    assert done.code == 2
    assert done.err.startswith("sessiontree: JournalUnwritable: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("dance",), ("survey",), ("survey", ".", "--dance")])
def test_wrong_usage_ends_with_2(program: Program, arguments: tuple[str, ...]) -> None:
    """Usage the parser refuses ends with 2 as well."""
    assert program.call(*arguments).code == 2


@pytest.mark.slow
def test_letters_the_terminal_does_not_have_are_escapes(program: Program, tmp_path: Path) -> None:
    """A terminal or pipe of ASCII gets what it can show, and no command fails because of it."""
    program.environment["PYTHONIOENCODING"] = "ascii"
    (tmp_path / "wö").mkdir()
    done = subprocess.run(  # the interpreter reads its variables as it starts: this one is not forked
        [COMMAND, "doctor", tmp_path / "wö"],
        env=program.environment,
        capture_output=True,
        timeout=MAX_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"w\xf6-" in done.stdout


@pytest.mark.slow
def test_closed_streams_are_no_failure(program: Program, ground: Path) -> None:
    """Started without input, output and errors a survey does what it does, and no file takes their place."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" survey "$1" --backend local <&- >&- 2>&-', COMMAND, ground],
        env=program.environment,
        capture_output=True,
        timeout=MAX_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert program.call("tree", ground).code == 0


@pytest.mark.slow
def test_reader_that_goes_away_ends_the_command(program: Program, ground: Path) -> None:
    """A closed pipe is no traceback; the survey it stops can be resumed."""
    with subprocess.Popen(
        [COMMAND, "survey", ground, "--backend", "local"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
