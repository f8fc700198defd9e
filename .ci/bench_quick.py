"""Run every benchmark in its quick form, so that none of them rots; print one line of JSON for each.

Run by path from anywhere: ``python .ci/bench_quick.py``. A benchmark is a module of ``benchmarks/`` that
defines ``main``; one that has more than one form gives the options of each, as literal text, in ``FORMS``.
The exit code is 1 when one of them failed, took too long or printed something else.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
MAX_S = 120
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def find_benchmarks(folder: Path) -> list[tuple[str, ...]]:
    """Return the modules that define ``main``, sorted: each form as its name and the form's options."""
    return [(path.stem, *form) for path in sorted(folder.glob("*.py")) for form in _forms(path)]


def _forms(path: Path) -> list[tuple[str, ...]]:
    """Return the options of each form of a benchmark; none where the module is no benchmark."""
    body = ast.parse(path.read_bytes(), path.name).body
    if not any(isinstance(node, FUNCTION) and node.name == "main" for node in body):
        return []
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FORMS":
            return list(ast.literal_eval(node.value))
    return [()]


def run(checkout: Path, name: str, *options: str) -> str:
    """Run one form of a benchmark and return its JSON object as one line.

    Raises:
        ValueError: it failed, took too long, or its output is not one JSON object; the text says which.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", *options]
    try:
        done = subprocess.run(
            command, cwd=checkout, stdout=subprocess.PIPE, text=True, timeout=MAX_S, check=True
        )
    except subprocess.CalledProcessError as failure:
        raise ValueError(f"it ended with exit code {failure.returncode}") from failure
    except subprocess.TimeoutExpired as failure:
        raise ValueError(f"it took longer than {MAX_S} s") from failure
    try:
        found = json.loads(done.stdout)
    except ValueError as failure:
        raise ValueError(f"it printed something that is not one JSON object: {failure}") from failure
    if not isinstance(found, dict):
        raise ValueError(f"it printed a JSON {type(found).__name__}, not an object")
    return json.dumps({"benchmark": " ".join([name, *options]), **found})


def main(checkout: Path = CHECKOUT) -> int:
    """Run them one after another; return the exit code."""
    failed = 0
    for name, *options in find_benchmarks(checkout / "benchmarks"):
        try:
            print(run(checkout, name, *options), flush=True)
        except ValueError as failure:
            failed = 1
            called = " ".join([f"benchmarks.{name}", *options])
            print(f"{called}: {failure}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
