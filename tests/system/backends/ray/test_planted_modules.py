"""No byte of a workspace is code of the runtime: modules planted there are imported by no process of ours.

Every planted module writes a line to a file outside when it runs. They are there before a tree opens, and a
model writes them again while it runs; programs start in every way Python has.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import numpy
import PIL.Image
import pydantic
import pytest

from tests.system.notebooks.kernel_fixtures import Kernel

PATIENCE_S = 200.0
TWENTY = """
pydantic json ray numpy msgpack sitecustomize usercustomize sessiontree sessiontree_tools typing_extensions
lancedb pyarrow httpx PIL asyncio encodings ssl site cloudpickle anyio
"""
MORE = "uvloop google yaml markdownify __future__ typing ctypes sqlite3 pathlib opcode re importlib"
"""What some library has, or asks for if it is there, and the standard library's."""
NAMES = (TWENTY + MORE).split()
OF_PYTHON = ("importlib", "opcode", "re")
"""What Python itself imports from the working directory before it begins with ``-m`` or ``-i``."""
NAMED = ("pydantic", "sessiontree", "sessiontree_tools", "typing_extensions")
"""What the cells name: where the workspace comes first on the path, no command replaces it."""
OF_A_VARIABLE = ("encodings", "site")
"""What a variable that names the directory makes part of every Python, before its first instruction."""

PROGRAM = '''
import sessiontree

import asyncio
import json
import os
import sys

from pydantic import BaseModel

from sessiontree import AsyncFunctionModel, SessionTree, script_call
from sessiontree_tools.web.html_process import convert_page


class Found(BaseModel):
    calls: list[str]
    page: str


def planting():
    """Calls that plant everything once more, by writing and by a command."""
    names, text = json.loads(os.environ["PLANTS"]), os.environ["PLANT"]
    files = [script_call("write", path=f"{name}.py", content=text) for name in names]
    folders, each = " ".join(names), 'printf "%s\\n# again\\n" "$text" >$name/__init__.py'
    again = f"rm -rf {folders}; mkdir -p {folders}; text=$(<{names[0]}.py)" if names else "true"
    return files, script_call("exec", command=f"{again}; for name in {folders}; do {each}; done; true")


FILES, FOLDERS = planting()


async def reply(request):
    is_worker = request.kind == "worker"
    if request.turn == 1 and is_worker:
        return [script_call("grep", pattern="needle"), script_call("read", path="picture.png")]
    if request.turn == 1:
        return FILES
    if request.turn == 2 and not is_worker:
        return [FOLDERS, script_call("memory_store", text="a needle is in the hay")]
    results = [each for each in request.messages if type(each).__name__ == "ToolResultMessage"]
    told = [each.tool_name if not each.is_error else str(each.content) for each in results]
    return json.dumps(sorted(set(told)))


async def main():
    workspace, state, backend = os.environ["PLACES"].split(":")
    model = AsyncFunctionModel(reply)
    given = dict(model=model, state_dir=state, backend=backend, slots=2, approvals="auto")
    async with SessionTree(workspace, **given) as tree:
        told = [str(await tree.main.send("go"))]
        for kind in ("worker", "branch"):
            child = await tree.main.spawn(kind, "look around")
            told.append((await child.result()).summary)
    page = convert_page(
        "<h1>Hay</h1><p>a <b>needle</b>", mode="markdown", base="", max_chars=100, stop=lambda: False
    )
    found = Found(calls=[name for each in told for name in json.loads(each)], page=page.text)
    print("FOUND", found.model_dump_json(), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
'''
CALLED = {"exec", "grep", "memory_store", "read", "write"}


class Ground:
    """A workspace full of plants, and what ran of them."""

    def __init__(self, place: Path, backend: str) -> None:
        """Plant every name, as a file and as a package."""
        self.workspace, self.backend, self._ran = place / "workspace", backend, place / "ran"
        self.workspace.mkdir(parents=True)
        report = "{os.getpid()} {os.environ.get('SESSIONTREE_ROLE')} {__name__} {sys.argv}\\n"
        self.plant = f"import os, sys\nopen({str(self._ran)!r}, 'a').write(f{report!r})\n"
        for name in NAMES:
            (self.workspace / f"{name}.py").write_text(self.plant)
            (self.workspace / name).mkdir()
            (self.workspace / name / "__init__.py").write_text(self.plant)
        (self.workspace / "program.py").write_text(PROGRAM)
        (self.workspace / "notes.md").write_text("a needle")
        PIL.Image.new("RGB", (8, 8)).save(self.workspace / "picture.png")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.environment = {
            **kept,
            "PLANTS": json.dumps(NAMES),
            "PLANT": self.plant,
            "PLACES": f"{self.workspace}:{place / 'state'}:{backend}",
        }

    def weed(self, *names: str) -> None:
        """Take some plants away."""
        for name in names:
            (self.workspace / f"{name}.py").unlink()
            shutil.rmtree(self.workspace / name)

    def run(self, *words: str, typed: str = "") -> str:
        """Run a command there; return what it printed."""
        done = subprocess.run(
            words,
            cwd=self.workspace,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, (done.stderr[-4000:], self.ran())
        return done.stdout

    def is_planted_again(self, *kept: str) -> bool:
        """Whether the command planted every name once more, as a package, but those that are protected."""
        names = [name for name in NAMES if name not in kept]
        return {(self.workspace / name / "__init__.py").read_text() for name in names} == {
            f"{self.plant}# again\n"
        }

    def ran(self) -> list[str]:
        """Return a line for every plant that was run."""
        return self._ran.read_text("utf-8").splitlines() if self._ran.exists() else []


@pytest.fixture
def ground(tmp_path: Path, backend: str) -> Ground:
    """A planted workspace, for a backend."""
    return Ground(tmp_path, backend)


def found_in(printed: str) -> set[str]:
    """Return the tools that were called, and see that the program came to its end."""
    (line,) = [line for line in printed.splitlines() if "FOUND" in line]
    found = json.loads(line.partition("FOUND ")[2])
    assert "# Hay" in found["page"]
    called: set[str] = set(found["calls"])
    return called


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "typed", "weeded"),
    [
        (["program.py"], "", ()),
        pytest.param(["-c", PROGRAM], "", (), marks=pytest.mark.long),
        pytest.param(["-m", "program"], "", OF_PYTHON, marks=pytest.mark.long),
        pytest.param(["-i", "-q"], f"exec({PROGRAM!r})\n", OF_PYTHON, marks=pytest.mark.long),
    ],
    ids=["script", "code", "module", "interactive"],
)
@pytest.mark.parametrize("backend", ["local", "ray"])
def test_program_imports_no_plant(
    ground: Ground, words: list[str], typed: str, weeded: tuple[str, ...]
) -> None:
    """However Python is started, neither the program nor a process of its tree runs a planted module."""
    ground.weed(*weeded)
    assert found_in(ground.run(sys.executable, *words, typed=typed)) == CALLED
    assert ground.is_planted_again()
    assert ground.ran() == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=pytest.mark.long)])
def test_cells_import_no_plant(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook next to the plants works, and runs none."""
    for name in ("PLANTS", "PLANT", "PLACES"):
        monkeypatch.setenv(name, ground.environment[name])
    with Kernel() as kernel:
        kernel.run(f"import os, sys\nos.chdir({str(ground.workspace)!r})\nsys.path.insert(0, '')")
        kernel.run(PROGRAM.partition("if __name__")[0])
        printed = kernel.run("await main()").printed
    assert found_in(printed) == CALLED
    assert ground.is_planted_again(*NAMED)
    assert ground.ran() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "variables", "weeded"),
    [pytest.param("ray", {}, (), marks=pytest.mark.long), ("local", {"PYTHONPATH": "."}, OF_A_VARIABLE)],
    ids=["ray", "local with a variable"],
)
def test_commands_import_no_plant(
    tmp_path: Path, backend: str, variables: dict[str, str], weeded: tuple[str, ...]
) -> None:
    """The command line works in a planted checkout, also where a variable names it."""
    ground = Ground(tmp_path, backend)
    ground.weed(*weeded)
    ground.environment.update(variables)
    survey(ground)
    assert ground.ran() == []


@pytest.mark.slow
@pytest.mark.long
def test_product_works_in_a_checkout_of_what_it_needs(tmp_path: Path) -> None:
    """Whoever works on pydantic, httpx or numpy itself has their packages at the workspace's root."""
    ground = Ground(tmp_path, "ray")
    ground.weed(*NAMES)
    for package in (pydantic, httpx):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, ground.workspace / source.name)
    (ground.workspace / "numpy").mkdir()  # of one that is compiled, a checkout can't even be imported
    shutil.copy(Path(str(numpy.__file__)), ground.workspace / "numpy")
    ground.environment["PLANTS"] = "[]"
    reading = PROGRAM.replace("return FILES", 'return [script_call("read", path="httpx/_api.py")]')
    assert found_in(ground.run(sys.executable, "-c", reading)) == CALLED - {"write"}
    survey(ground)


def survey(ground: Ground) -> None:
    """Survey the workspace by the command line."""
    command, state = Path(sys.executable).with_name("sessiontree"), ground.workspace.parent / "surveys"
    options = ("--approve", "never", "--backend", ground.backend, "--state-dir", str(state))
    assert "completed" in ground.run(str(command), "survey", ".", *options)
