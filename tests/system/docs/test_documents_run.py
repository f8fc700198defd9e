"""The Python in README.md and in the pages of docs/ runs as it is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.system.forked_fixtures import run_forked

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^It prints:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIRST_PRINTED = re.compile(r"It prints:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = (
    "agents.md",
    "configuration.md",
    "containers.md",
    "hierarchies.md",
    "mending.md",
    "metrics.md",
    "models.md",
    "notebooks.md",
    "programs.md",
    "replay.md",
    "results.md",
    "suites.md",
    "tools.md",
    "written_programs.md",
)
"""Pages whose blocks are one program, from top to bottom, with ``await`` at the top level."""
MAX_S = 600
MAX_README_LINES = 200
CHECKOUT = Path(__file__).resolve().parents[3]


def run_program(source: str, place: Path, **variables: str) -> str:
    """Run a program in an empty workspace and return what it printed; fails with its errors."""
    workspace = place / "workspace"
    workspace.mkdir()
    program = place / "program.py"
    program.write_text(source, "utf-8")
    env = {**os.environ, "XDG_STATE_HOME": str(place / "state"), **variables}
    ended = run_forked(program, kind="file", folder=workspace, environment=env, max_s=MAX_S)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def page_program(page: str) -> str:
    """Return a page's blocks as one script."""
    body = "\n".join(PYTHON.findall(page))
    return f"import asyncio\n\nasync def main():\n{textwrap.indent(body, '    ')}\n\nasyncio.run(main())\n"


def readme_blocks(language: str) -> list[str]:
    """Return the blocks of the README in a language, in order."""
    readme = (CHECKOUT / "README.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)


def run_commands(block: str, where: Path, place: Path, **variables: str) -> str:
    """Type a block's commands into a shell; return what they print, or fail with their errors.

    Args:
        block: Lines that begin with ``$``.
        where: The directory they are typed in.
        place: Holds the user's home.
        variables: More of the environment; the interpreter of the tests is the first ``python`` on its path.
    """
    lines = block.splitlines()
    assert all(line.startswith("$ ") for line in lines), lines
    home = place / "home"
    home.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MAKE"))}
    ended = subprocess.run(
        ["bash", "-eu", "-c", "\n".join(line.removeprefix("$ ") for line in lines)],
        cwd=where,
        env={**kept, "HOME": str(home), "PATH": path, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_readme_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    """The block of Python is a whole program; its output is the block after it."""
    readme = (CHECKOUT / "README.md").read_text("utf-8")
    (program,), (printed,) = PYTHON.findall(readme), PRINTED.findall(readme)
    assert run_program(program, tmp_path) == printed


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_readme_commands_are_typed_as_they_are_written(tmp_path: Path) -> None:
    """Set-up, a task for a real model, and the list of providers."""
    start, _, _ = readme_blocks("console")
    said = run_commands(start, CHECKOUT, tmp_path)
    assert "local:smollm2, approvals: " in said
    assert "(completed: " in said
    assert "ANTHROPIC_API_KEY" in said


@pytest.mark.slow
def test_readme_installation_leaves_the_package(tmp_path: Path) -> None:
    """Its commands build a wheel and install it."""
    _, install, _ = readme_blocks("console")
    sources = tmp_path / "sources"
    for name in ("sessiontree", "tools"):
        shutil.copytree(CHECKOUT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, sources)
    # what the wheel is built with is here already, and what it needs is not fetched
    here = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    run_commands(install, sources, tmp_path, **here, PIP_TARGET=str(tmp_path / "installed"))
    assert (tmp_path / "installed" / "sessiontree" / "api" / "tree" / "session_tree.py").is_file()


def test_readme_names_targets_that_there_are(tmp_path: Path) -> None:
    """``make`` says what it would run, from set-up to the tests."""
    *_, targets = readme_blocks("console")
    said = run_commands(targets, CHECKOUT, tmp_path, MAKEFLAGS="n")
    assert ".ci/setup.py" in said
    assert "sessiontree run" in said
    assert "pytest" in said


def test_readme_is_short_and_has_no_block_that_nobody_runs() -> None:
    """A block is a program, commands, or what these print."""
    assert len((CHECKOUT / "README.md").read_text("utf-8").splitlines()) <= MAX_README_LINES
    fences = re.findall(r"^```(.*)$", (CHECKOUT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(fences[::2]) == {"python", "console", "text"}
    assert set(fences[1::2]) == {""}
    assert len(readme_blocks("python")) == 1
    assert len(readme_blocks("console")) == 3


@pytest.mark.slow
def test_played_model_does_the_task_of_the_recording(tmp_path: Path) -> None:
    """The documents are given to Workers, a command counts their lines, and Main answers."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for page in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md"):
        (workspace / page).write_text("one\ntwo\n")
    command = [sys.executable, str(CHECKOUT / "docs" / "examples" / "played_model.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as playing:
        try:
            assert playing.stdout is not None
            variables = dict(each.split("=", 1) for each in playing.stdout.readline().split()[1:])
            task = (
                "$ sessiontree run 'How long are they?' --model openai:gpt-5 --approve auto --backend local"
            )
            said = run_commands(task, workspace, tmp_path, **variables)
        finally:
            playing.kill()
    assert "ended main/w3: completed" in said
    assert "approved by mode: exec for main" not in said  # only who asks a person asks about commands
    assert "ARCHITECTURE.md is the longest" in said
    assert re.search(r"\(completed: .*, \$0\.\d{4}; ", said)


@pytest.mark.parametrize("name", PAGES)
def test_page_runs_from_top_to_bottom(tmp_path: Path, name: str) -> None:
    """Each page's blocks run in their order as one program."""
    page = (CHECKOUT / "docs" / name).read_text("utf-8")
    assert run_program(page_program(page), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.long
def test_local_model_does_what_the_page_says(tmp_path: Path) -> None:
    """Three typed results, whatever they are, and a reply; no proxy is asked for what is here."""
    program = (CHECKOUT / "docs" / "examples" / "local_model.py").read_text("utf-8")
    lines = run_program(program, tmp_path, HTTP_PROXY="http://127.0.0.1:9").splitlines()
    assert [line.partition("(")[0] for line in lines[:3]] == ["Thing"] * 3
    assert len(lines) > 3


def start_page(name: str) -> tuple[str, str]:
    """Return the Python of a page for beginners as one text, and the page."""
    page = (CHECKOUT / "docs" / "start" / name).read_text("utf-8")
    return "\n".join(PYTHON.findall(page)), page


def test_first_program_prints_what_its_page_says(tmp_path: Path) -> None:
    """The block is a whole program."""
    program, page = start_page("program.md")
    assert [run_program(program, tmp_path)] == FIRST_PRINTED.findall(page)


def test_first_cells_print_what_their_page_says(tmp_path: Path) -> None:
    """The blocks are cells, one after the other."""
    _, page = start_page("notebook.md")
    assert [run_program(page_program(page), tmp_path)] == PRINTED.findall(page)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_suite_is_run_and_reported(tmp_path: Path) -> None:
    """The block is the suite's file; the commands run it and show what did not pass."""
    suite, page = start_page("suite.md")
    (commands,) = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "addition.py").write_text(suite, "utf-8")
    said = run_commands(commands, tmp_path, tmp_path)
    assert "10 of 10 scored (coverage 100.0%), 9 passed (90.0% of the scored)" in said
    assert "not passed: 1  add-9" in said


def test_every_page_with_python_is_run() -> None:
    """A page that gains a block of Python is run, too."""
    docs = CHECKOUT / "docs"
    pages = {
        page.relative_to(docs).as_posix() for page in docs.rglob("*.md") if PYTHON.search(page.read_text())
    }
    assert pages == {*PAGES, *(f"start/{name}.md" for name in ("notebook", "program", "suite"))}


def test_planted_mistake_in_a_block_is_noticed(tmp_path: Path) -> None:
    """A block that raises fails the page."""
    page = "```python\nawait asyncio.sleep(0)\n```\n\n```python\nundefined_name\n```\n"
    with pytest.raises(AssertionError, match="undefined_name"):
        run_program(page_program(page), tmp_path)
