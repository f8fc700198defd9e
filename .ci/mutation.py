"""Change the code of pure rooms on purpose, one place at a time, and list the changes that no test finds.

``python .ci/mutation.py [--minutes N] [--share 0.2] [--processes 1] [ROOM | ROOM.MODULE+MODULE]…``; without
a name policy, schema, session, tree. ``--share`` tries that part of the changes: those whose names have the
smallest checksums. The choice is the same each time, and a larger share contains a smaller one.
``make mutation R=policy`` makes the environment that this needs (mutmut, over the libraries of ``.venv``).

Each name's code is copied with the tests to ``mutants/NAME``, where mutmut runs the fast tests of the folders
that have the room's name; only those that call a changed function. A change that was found stays found the
next time, so a run that was stopped, or had ``--minutes``, goes on; survivors are tried again. Remove
``mutants/`` to start again. Hypothesis draws few examples there, always the same ones.

Code that runs only while its module is imported, such as that of a table, cannot be changed in this way: all
changes of it survive.

``mutants/NAME/survivors.txt`` holds each surviving change as a diff. The exit code is 0 also with survivors:
a person decides which of them deserve a test (another wording of an error rarely does).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PYTHON = CHECKOUT / ".venv-mutation" / "bin" / "python"
ROOMS = ("policy", "schema", "session", "tree")
STOP_S = 60
FOUND = 1
"""Exit code of pytest where a test failed."""
SETTINGS = """[tool.pytest.ini_options]
addopts = "--strict-markers --import-mode=importlib"
anyio_mode = "auto"
filterwarnings = ["error"]
markers = ["slow", "long", "short", "covers"]

[tool.mutmut]
source_paths = ["sessiontree"]
only_mutate = [{code}]
also_copy = ["sessiontree_tools", "mutation_profile.py"]
pytest_add_cli_args = ["-p", "mutation_profile", "--hypothesis-profile=mutation"]
# A call of a changed function costs more, so a bound on costs says nothing here.
pytest_add_cli_args_test_selection = [{folders}, "-m", "not slow and not long", "-k", "not cost"]
use_git_change_detection = false
"""
PROFILE = """import sys
from hypothesis import HealthCheck, settings
sys.setrecursionlimit(2 * sys.getrecursionlimit())  # each call of a changed function has a frame more
settings.register_profile(
    "mutation", max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
"""
RUN = """
import sys, zlib
from mutmut import __main__ as mutmut
share, processes = float(sys.argv[1]), sys.argv[2]
collect = mutmut.collect_source_file_mutation_data
def collect_share(**filters):
    mutants, files = collect(**filters)
    return [each for each in mutants if zlib.crc32(each[1].encode()) < share * 2**32], files
mutmut.collect_source_file_mutation_data = collect_share
mutmut.run(["--max-children", processes])
"""
COUNT = """
import collections, json, pathlib
from mutmut.stats import status_by_exit_code
counts = collections.Counter()
for path in pathlib.Path("mutants").rglob("*.meta"):
    codes = json.loads(path.read_text())["exit_code_by_key"]
    counts.update(status_by_exit_code[code] for code in codes.values())
print(", ".join(f"{status} {count}" for status, count in counts.most_common()))
"""
DIFFS = """
import json, pathlib
from mutmut.__main__ import get_diff_for_mutant
for path in sorted(pathlib.Path("mutants").rglob("*.meta")):
    for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
        if code == 0:
            print(name, get_diff_for_mutant(name), sep="\\n")
"""


def prepare(room: str, modules: str) -> Path:
    """Copy what mutmut needs and return the copy's directory; results of an earlier run stay in it.

    Args:
        room: A room of the package.
        modules: Modules of it, with ``+`` between them; empty = all of them.

    Raises:
        FileNotFoundError: no such room, no such module, or no tests of it.
    """
    code = [f"{room}/{each}.py" for each in modules.split("+")] if modules else [f"{room}/*"]
    for each in code:
        if not list((CHECKOUT / "sessiontree").glob(each)):
            raise FileNotFoundError(f"the package has no {each}")
    folders = [path.relative_to(CHECKOUT) for path in (CHECKOUT / "tests").rglob(room) if path.is_dir()]
    if not folders:
        raise FileNotFoundError(f"tests/ has no folder {room}")
    place = CHECKOUT / "mutants" / (f"{room}.{modules}" if modules else room)
    _forget(place / "mutants")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("sessiontree", "tests", "tools/sessiontree_tools"):
        copy = place / Path(name).name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(CHECKOUT / name, copy, ignore=ignore)
    settings = SETTINGS.format(
        code=", ".join(f'"sessiontree/{each}"' for each in code),
        folders=", ".join(f'"{folder.as_posix()}"' for folder in sorted(folders)),
    )
    (place / "pyproject.toml").write_text(settings, "utf-8")
    (place / "mutation_profile.py").write_text(PROFILE, "utf-8")
    return place


def _forget(results: Path) -> None:
    """Forget which tests call which function, and every result but the changes that a test found."""
    (results / "mutmut-stats.json").unlink(missing_ok=True)
    for path in results.rglob("*.meta"):
        held = json.loads(path.read_text("utf-8"))
        codes = held["exit_code_by_key"]
        held["exit_code_by_key"] = {name: code if code == FOUND else None for name, code in codes.items()}
        path.write_text(json.dumps(held), "utf-8")


def start(place: Path, *words: str, output: int | None = None) -> subprocess.Popen[str]:
    """Start Python with mutmut in a copy, the libraries of ``.venv`` within reach but not its package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    libraries = sysconfig.get_path("purelib")
    return subprocess.Popen(
        [PYTHON, *words],
        cwd=place,
        env={**kept, "PYTHONPATH": os.pathsep.join([libraries, str(place)])},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
        text=True,
    )


def mutate(place: Path, share: float, processes: int, seconds: float | None) -> int:
    """Run mutmut in a copy.

    Args:
        place: The copy.
        share: Which part of the changes it tries, more than 0 and at most 1.
        processes: How many of them at a time.
        seconds: When it stops; None = when it has tried them.

    Returns:
        Its exit code, 0 where the time was up.
    """
    with (place / "run.log").open("w") as log:
        process = start(place, "-c", RUN, str(share), str(processes), output=log.fileno())
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it keeps what it knows by then
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            return 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ask(place: Path, program: str) -> str:
    """Return what a program about mutmut's results prints."""
    return start(place, "-c", program, output=subprocess.PIPE).communicate()[0]


def main(*words: str) -> int:
    """Run over the named rooms; return the exit code."""
    parser = argparse.ArgumentParser(prog="mutation.py", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, help="stop each room after so many minutes")
    parser.add_argument("--share", type=float, default=1.0, help="try this part of the changes, such as 0.2")
    parser.add_argument("--processes", type=int, default=2, help="how many changes are tried at a time")
    parser.add_argument("rooms", nargs="*", metavar="ROOM[.MODULE[+MODULE]]")
    options = parser.parse_args(words)
    failed = 0
    for name in options.rooms or ROOMS:
        room, _, modules = name.partition(".")
        began = time.monotonic()
        try:
            place = prepare(room, modules)
        except FileNotFoundError as failure:
            print(f"{name}: {failure}", file=sys.stderr)
            failed = 1
            continue
        code = mutate(place, options.share, options.processes, options.minutes and options.minutes * 60)
        survivors = place / "survivors.txt"
        survivors.write_text(ask(place, DIFFS), "utf-8")
        minutes = (time.monotonic() - began) / 60
        print(
            f"{name}: {ask(place, COUNT).strip()}; {minutes:.1f} min; see {survivors.relative_to(CHECKOUT)}"
        )
        if code:
            print(
                f"{name}: mutmut ended with {code}; see {place.relative_to(CHECKOUT)}/run.log",
                file=sys.stderr,
            )
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
