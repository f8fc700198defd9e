"""A suite with packages of its own: its environment is made once, and the command runs itself in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sessiontree.bench.suite.environment import choose_pip_options, locate_environment
from tests.system.bench.suite_fixtures import rows
from tests.system.cli.command_fixtures import COMMAND

MAX_S = 240.0
SUITE = """
{imports}
from sessiontree import FunctionModel
from sessiontree.bench import Sample, Suite

async def solve(attempt):
    import tiny_harness
    return await attempt.tree.main.send(tiny_harness.WORD)

def exact(attempt):
    return attempt.output == "tiny"

suite = Suite(
    "tiny", [Sample("a"), Sample("b")], solve, exact, env={env!r},
    model=FunctionModel(lambda request: request.messages[-1].text),
)
"""


def wheel(place: Path, word: str = "tiny") -> str:
    """Write a wheel of one module; return the line of a requirements file that names it."""
    name = "tiny_harness-1.0-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: tiny-harness\nVersion: 1.0\n"
    with zipfile.ZipFile(place / name, "w") as packed:
        packed.writestr("tiny_harness.py", f"WORD = {word!r}\n")
        info = "tiny_harness-1.0.dist-info"
        packed.writestr(f"{info}/METADATA", about)
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")
    return f"./{name}\n"


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a cache of its own."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(place / "cache")}
    return subprocess.run(
        [COMMAND, "bench", *arguments],
        cwd=place,
        env=variables,
        capture_output=True,
        text=True,
        timeout=MAX_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.long
def test_suite_runs_in_its_environment(tmp_path: Path) -> None:
    """Made by the first command that needs it, saying so; then ready; made again when the file changes."""
    (tmp_path / "requirements.txt").write_text(wheel(tmp_path))
    (tmp_path / "tiny.py").write_text(SUITE.format(imports="", env="requirements.txt"))
    first = run(tmp_path, "run", "tiny.py:suite", "--backend", "local", "--dir", "run")
    assert first.returncode == 0, first.stderr
    assert "preparing" in first.stdout
    assert "2 of 2 scored (coverage 100.0%), 2 passed" in first.stdout
    again = run(tmp_path, "prepare", "tiny.py:suite")
    assert again.returncode == 0, again.stderr
    assert "preparing" not in again.stdout
    (tmp_path / "requirements.txt").write_text(f"# another\n{wheel(tmp_path)}")
    changed = run(tmp_path, "prepare", "tiny.py:suite")
    assert "preparing" in changed.stdout


@pytest.mark.slow
@pytest.mark.long
def test_suite_may_need_its_environment_to_be_loaded(tmp_path: Path) -> None:
    """Then a ``suite.toml`` names it; a build that was interrupted is begun again."""
    (tmp_path / "needs.txt").write_text(wheel(tmp_path))
    (tmp_path / "tiny.py").write_text(SUITE.format(imports="import tiny_harness", env=None))
    (tmp_path / "suite.toml").write_text('suite = "tiny.py:suite"\nenv = "needs.txt"\n')
    prepared = run(tmp_path, "prepare", "suite.toml")
    assert prepared.returncode == 0, prepared.stderr
    (place,) = [each for each in (tmp_path / "cache/sessiontree/suites").iterdir() if each.is_dir()]
    (place / "suite.json").unlink()  # as if it had been killed just before its end
    (place / "bin" / "python").unlink()
    done = run(tmp_path, "run", "suite.toml", "--backend", "local", "--dir", "run")
    assert done.returncode == 0, done.stderr
    assert "preparing" in done.stdout
    assert rows(tmp_path / "run", "SELECT sum(passed) FROM scores") == [(2,)]


@pytest.mark.slow
def test_environment_that_can_not_be_made_is_one_error(tmp_path: Path) -> None:
    """It says what pip said, and the run is not begun."""
    (tmp_path / "requirements.txt").write_text("./no-such-1.0-py3-none-any.whl\n")
    (tmp_path / "tiny.py").write_text(SUITE.format(imports="", env="requirements.txt"))
    done = run(tmp_path, "run", "tiny.py:suite", "--backend", "local", "--dir", "run")
    assert done.returncode == 2
    assert "could not be built" in done.stderr
    assert "no-such" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a==1\n# note\nb==2 ; python_version > '3'\n", []),
        ("a==1 \\\n    --hash=sha256:00\n", ["--no-deps", "--require-hashes"]),
        ("a>=1\nb==2\n", []),
        ("./a-1-py3-none-any.whl\n", []),
        ("a==1 \\\n    --hash=sha256:00\nb==2\n", ["--require-hashes"]),
    ],
)
def test_files_with_hashes_are_not_resolved_again(tmp_path: Path, text: str, options: list[str]) -> None:
    """A line with a version alone may depend on others, which are installed too."""
    (tmp_path / "needs.txt").write_text(text)
    assert choose_pip_options(tmp_path / "needs.txt") == options


def test_environments_differ_by_what_their_files_hold(tmp_path: Path) -> None:
    """Two files of one name do not share a place, and the same text does."""
    for name, text in (("a", "x==1"), ("b", "x==2"), ("c", "x==1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text(text)
    first, second, third = (locate_environment(tmp_path / name / "requirements.txt") for name in "abc")
    assert first.place == third.place != second.place
    assert not first.place.is_relative_to(sys.prefix)
