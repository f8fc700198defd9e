"""Run every benchmark in its quick form, so that none of them rots; print one line of JSON for each.

Run by path from anywhere: ``python .ci/bench_quick.py``. A benchmark is a module of ``benchmarks/`` that
defines ``main``. The exit code is 1 when one of them failed, took too long or printed something else.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LONGEST_S = 120


def find_benchmarks(folder: Path) -> list[str]:
    """Return the names of the modules that define ``main``, sorted."""
    return sorted(path.stem for path in folder.glob("*.py") if _has_main(path))


def _has_main(path: Path) -> bool:
    body = ast.parse(path.read_bytes(), path.name).body
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "main" for node in body
    )


def run(checkout: Path, name: str) -> str:
    """Run one benchmark and return its JSON object as one line.

    Raises:
        ValueError: it failed, took too long, or its output is not one JSON object; the text says which.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json"]
    try:
        done = subprocess.run(
            command, cwd=checkout, stdout=subprocess.PIPE, text=True, timeout=LONGEST_S, check=True
        )
    except subprocess.CalledProcessError as failure:
        raise ValueError(f"it ended with exit code {failure.returncode}") from failure
    except subprocess.TimeoutExpired as failure:
        raise ValueError(f"it took longer than {LONGEST_S} s") from failure
    try:
        found = json.loads(done.stdout)
    except ValueError as failure:
        raise ValueError(f"it printed something that is not one JSON object: {failure}") from failure
    if not isinstance(found, dict):
        raise ValueError(f"it printed a JSON {type(found).__name__}, not an object")
    return json.dumps({"benchmark": name, **found})


def main(checkout: Path = CHECKOUT) -> int:
    """Run them one after another; return the exit code."""
    failed = 0
    for name in find_benchmarks(checkout / "benchmarks"):
        try:
            print(run(checkout, name), flush=True)
        except ValueError as failure:
            failed = 1
            print(f"benchmarks.{name}: {failure}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
