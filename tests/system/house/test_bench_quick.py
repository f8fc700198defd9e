"""``make bench-quick`` runs every benchmark there is and fails when one of them does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = "import json, sys\ndef main():\n    print(json.dumps({'asked': sys.argv[1:]}, indent=1))\nmain()\n"


@pytest.fixture
def bench(checkout: Path, tmp_path: Path) -> Path:
    """A checkout that holds the script, one benchmark, and one module next to it that is not valid."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(checkout / ".ci" / "bench_quick.py", tmp_path / ".ci")
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "good.py").write_text(GOOD)
    (tmp_path / "benchmarks" / "clock.py").write_text("raise SystemExit('not a benchmark')\n")
    return tmp_path


def run(bench: Path) -> tuple[int, list[dict[str, object]], str]:
    """Run the script; return exit code, the objects printed, and the complaints."""
    command = [sys.executable, str(bench / ".ci" / "bench_quick.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_each_benchmark_prints_one_line(bench: Path) -> None:
    """Modules with a ``main`` run with ``--quick --json``; the others are left alone."""
    expected = [{"benchmark": "good", "asked": ["--quick", "--json"]}]
    assert run(bench) == (0, expected, "")


@pytest.mark.slow
def test_each_form_prints_a_line_of_its_own(bench: Path) -> None:
    """A benchmark that names its forms runs once for each, distinguished by the options."""
    forms = "FORMS = ((), ('--backend', 'ray'))\n"
    (bench / "benchmarks" / "good.py").write_text(forms + GOOD)
    code, objects, complaints = run(bench)
    assert (code, complaints) == (0, "")
    assert objects == [
        {"benchmark": "good", "asked": ["--quick", "--json"]},
        {"benchmark": "good --backend ray", "asked": ["--quick", "--json", "--backend", "ray"]},
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def main(): ...\nraise SystemExit(3)\n", "exit code 3"),
        ("async def main(): ...\nprint('fast')\n", "not one JSON object"),
        ("def main(): ...\nprint('{}{}')\n", "not one JSON object"),
        ("def main(): ...\nprint([1])\n", "a JSON list"),
    ],
)
def test_planted_failure_fails_the_run_and_hides_no_other(bench: Path, source: str, complaint: str) -> None:
    """One broken benchmark fails the whole, names itself, and the others still run."""
    (bench / "benchmarks" / "broken.py").write_text(source)
    code, objects, complaints = run(bench)
    assert code == 1
    assert [found["benchmark"] for found in objects] == ["good"]
    assert "benchmarks.broken: " in complaints
    assert complaint in complaints
