"""Run the fast tests that a change concerns, or the tests of one room.

``python .ci/selected_tests.py changed [argument of pytest…]`` looks at what differs from where the branch
left ``main``, uncommitted and new files included (``BASE=…`` in the environment names another commit).
``python .ci/selected_tests.py room NAME [argument of pytest…]`` takes each folder of ``tests/`` of that name.

The rule for a change, by the import graph of the packages and by what each test file imports:

1. A changed test file runs. A changed module of ``tests/`` counts for the files that import it, and a
   ``conftest.py`` for the files of its folder.
2. A changed module of the packages runs the folders of its room, however many files they have.
3. Then come the test files that import it themselves, the quickest first, as long as they take at most
   ``MAX_FURTHER_S`` by ``tests/seconds.txt``; that is all of them, unless half of the house imports it.
4. Then come the test files one import further away (they import a module, or a module of ``tests/``, that
   imports the changed one), then two, and so on. Each step is taken as a whole, as long as the further files
   stay within that time and all files together are at most ``MAX_FILES``.
5. Any other changed file runs the test files that name it; a file that every test depends on (``WHOLE``)
   runs everything that is fast.

Far effects of a change are left to ``make check`` and ``make test``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import grimp

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = {"sessiontree": "sessiontree", "sessiontree_tools": "tools/sessiontree_tools"}
WHOLE = frozenset({"pyproject.toml", "requirements.lock", "tests/conftest.py"})
MAX_FILES = 40
MAX_FURTHER_S = 20.0
EXAMPLES = "10"
"""Of each property: `make test` makes longer searches."""
FAST = "not slow and not long"
IMPORT = re.compile(r"^\s*(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w., ]+))", re.MULTILINE)
NO_TESTS = 5
"""Exit code of pytest where every test of the files was left out."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a selection looks at.

    Attributes:
        importers: For each module of the packages those that import it themselves.
        imports: For each module of ``tests/``, test files included, the modules that it imports, of the
            packages and of ``tests/``; by the file's path beneath the checkout.
        texts: The text of each test file, by its path.
        seconds: How long the tests of a file take, by its path; files that take next to nothing are left out.
    """

    importers: Mapping[str, Collection[str]]
    imports: Mapping[str, Collection[str]]
    texts: Mapping[str, str]
    seconds: Mapping[str, float] = field(default_factory=dict)


def select(changed: Iterable[str], sources: Sources, max_files: int = MAX_FILES) -> list[str] | None:
    """Return the test files that changed files concern, sorted; None where it is every one.

    Args:
        changed: Paths beneath the checkout, also of files that were removed.
        sources: The packages' graph and the tests.
        max_files: How many files at most, unless the nearest are more; a file that imports a changed module
            itself is left out for its time alone.
    """
    changed = set(changed)
    if changed & WHOLE:
        return None
    nearest: set[str] = set()
    modules: set[str] = set()
    for path in sorted(changed):
        module = module_of(path)
        if path in sources.texts:
            nearest.add(path)
        elif PurePosixPath(path).name == "conftest.py":
            nearest |= files_below(sources, str(PurePosixPath(path).parent))
        elif module is None:
            nearest |= {name for name, text in sources.texts.items() if PurePosixPath(path).name in text}
        else:
            modules.add(module)
            nearest |= files_of_room(sources, module)
    return sorted(nearest | find_further(nearest, measure(modules, sources), sources.seconds, max_files))


def find_further(
    nearest: Collection[str], distances: Mapping[str, int], seconds: Mapping[str, float], max_files: int
) -> set[str]:
    """Return the files that run besides the nearest ones: by their distance, within time and number."""
    found: set[str] = set()
    spent_s = 0.0
    for steps in range(max(distances.values(), default=0) + 1):
        step = {file for file, away in distances.items() if away == steps} - set(nearest)
        step_s = sum(seconds.get(file, 0.0) for file in step)
        is_whole = spent_s + step_s <= MAX_FURTHER_S
        if steps > 0 and not (is_whole and len(nearest) + len(found | step) <= max_files):
            break
        for file in sorted(step, key=lambda file: (seconds.get(file, 0.0), file)):
            spent_s += seconds.get(file, 0.0)
            if spent_s > MAX_FURTHER_S:
                return found
            found.add(file)
    return found


def module_of(path: str) -> str | None:
    """Return the module at a path beneath the checkout; None for a file that is not one of our modules."""
    if not path.endswith(".py") or path.endswith("/conftest.py"):
        return None
    for package, folder in {**PACKAGES, "tests": "tests", "benchmarks": "benchmarks"}.items():
        if path.startswith(f"{folder}/"):
            within = path.removeprefix(f"{folder}/").removesuffix(".py").removesuffix("__init__")
            return ".".join([package, *filter(None, within.split("/"))])
    return None


def files_below(sources: Sources, folder: str) -> set[str]:
    """Return the test files of a folder and of those in it."""
    return {file for file in sources.texts if file.startswith(f"{folder}/")}


def files_of_room(sources: Sources, module: str) -> set[str]:
    """Return the test files in folders that have the name of a module's room."""
    package, _, rest = module.partition(".")
    if package not in PACKAGES:
        return set()
    room = rest.partition(".")[0] if package == "sessiontree" else "tools"
    return {file for file in sources.texts if room in PurePosixPath(file).parts[1:-1]}


def measure(modules: Collection[str], sources: Sources) -> dict[str, int]:
    """Return how many imports are between each test file and the nearest changed module; 0 = none."""
    users: dict[str, set[str]] = {}
    for file, imported in sources.imports.items():
        for module in imported:
            users.setdefault(module, set()).add(file)
    distances: dict[str, int] = {}
    seen, frontier, steps = set(modules), set(modules), 0
    while frontier:
        files = {file for module in frontier for file in users.get(module, ())}
        for file in files & sources.texts.keys():
            distances.setdefault(file, steps)
        near = {user for module in frontier for user in sources.importers.get(module, ())}
        near |= {name for file in files - sources.texts.keys() if (name := module_of(file))}
        frontier = near - seen
        seen |= frontier
        steps += 1
    return distances


def read_sources(checkout: Path) -> Sources:
    """Read the import graph of the packages and every module of ``tests/``."""
    sys.path.insert(0, str(checkout / "tools"))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)  # a stale one would leave tests out
    importers = {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
    imports: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    known = set(graph.modules)
    for path in sorted((checkout / "tests").rglob("*.py")):
        file = path.relative_to(checkout).as_posix()
        text = path.read_text("utf-8")
        imports[file] = set(list_imports(text))
        if path.name.startswith("test_"):
            texts[file] = text
        known |= {module} if (module := module_of(file)) else set()
    rows = map(str.split, (checkout / "tests" / "seconds.txt").read_text("utf-8").splitlines())
    return Sources(
        importers,
        {file: found & known | benchmarks_of(found) for file, found in imports.items()},
        texts,
        {part: float(seconds) for seconds, part in rows},
    )


def benchmarks_of(modules: Iterable[str]) -> set[str]:
    """Return the modules that are benchmarks."""
    return {module for module in modules if module.startswith("benchmarks.")}


def list_imports(text: str) -> Iterable[str]:
    """Yield the modules that a text or a program in it imports; ``from a import b`` is ``a`` and ``a.b``."""
    for found in IMPORT.finditer(text):
        module, names, plain = found.groups()
        if module:
            yield module
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))
        else:
            yield from re.findall(r"[\w.]+", plain)


def list_changed(checkout: Path, base: str) -> set[str]:
    """Return the paths that differ from where the branch left a commit, and those that git does not know.

    Raises:
        subprocess.CalledProcessError: git does not know the commit, or this is not a checkout.
    """
    left = _run_git(checkout, "merge-base", "HEAD", base).strip()
    differing = _run_git(checkout, "diff", "--name-only", "--no-renames", "-z", left)
    unknown = _run_git(checkout, "ls-files", "--others", "--exclude-standard", "-z")
    return {name for name in (differing + unknown).split("\0") if name}


def _run_git(checkout: Path, *words: str) -> str:
    command = ["git", "-c", "safe.directory=*", *words]
    return subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True).stdout


def find_room(checkout: Path, room: str) -> list[str]:
    """Return the folders of tests that have a room's name."""
    folders = [path for path in (checkout / "tests").rglob(room) if path.is_dir() and room != "__pycache__"]
    return sorted(path.relative_to(checkout).as_posix() for path in folders)


def run_pytest(checkout: Path, marks: str, *arguments: str, **variables: str) -> int:
    """Run tests in two processes, test by test: one long file must not keep a process waiting.

    Args:
        checkout: Where they run.
        marks: Which of them, as pytest's ``-m`` has it.
        arguments: Of pytest.
        variables: Environment variables that hold where the environment has none of the name.

    Returns:
        The exit code; 0 where every test of the files is left out by its marks.
    """
    command = [sys.executable, "-m", "pytest", "--quiet", "--dist=worksteal", "--numprocesses=2", "-m", marks]
    environment = {**variables, **os.environ}
    code = subprocess.run([*command, *arguments], cwd=checkout, env=environment, check=False).returncode
    return 0 if code == NO_TESTS else code


def main(*words: str, checkout: Path = CHECKOUT) -> int:
    """Select and run; return the exit code."""
    match words:
        case ("changed", *arguments):
            changed = list_changed(checkout, os.environ.get("BASE") or "main")
            selected = select(changed, read_sources(checkout))
            shown = "every fast test" if selected is None else f"fast tests of {len(selected)} files"
            print(f"{len(changed)} changed files: {shown}", flush=True)
            if selected == []:
                return 0
            shorter = {"SESSIONTREE_TEST_EXAMPLES": EXAMPLES}
            return run_pytest(checkout, FAST, *(selected or ["tests"]), *arguments, **shorter)
        case ("room", str(room), *arguments) if folders := find_room(checkout, room):
            return run_pytest(checkout, "not long", *folders, *arguments)
        case ("room", *_):
            names = sorted(
                {path.name for path in (checkout / "tests").rglob("*") if path.is_dir()} - {"__pycache__"}
            )
            print(f"name a room: make room R=NAME, with one of {', '.join(names)}", file=sys.stderr)
            return 2
        case _:
            print(f"not an order: {' '.join(words) or 'nothing'}; say changed or room", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
