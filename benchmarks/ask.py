"""Ask: how many questions about strangers' repositories have the right definition among the first three.

Run with checkouts: ``python -m benchmarks.ask flask=../flask ripgrep=../ripgrep zod=../zod``.
Questions and answers are in ``ask_questions.json``, written before the survey that answers them.
Without a checkout a folder of this package is asked about, which shows no more than that it works.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Figure

PLACES = 3
_QUESTIONS = Path(__file__).with_name("ask_questions.json")
_OWN = "contracts"
_OWN_PATH = Path(__file__).parent.parent / "sessiontree" / "contracts"
_COMMAND = (sys.executable, "-m", "sessiontree.cli")


def main() -> None:
    """Survey copies of the checkouts, ask every question, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkouts", nargs="*", metavar="NAME=PATH", help="a checkout of a repository")
    parser.add_argument("--quick", action="store_true", help="one question of each repository")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    options = parser.parse_args()
    given = dict(one.split("=", 1) for one in options.checkouts) or {_OWN: str(_OWN_PATH)}
    found: dict[str, Figure] = {}
    for repository in json.loads(_QUESTIONS.read_text("utf-8")):
        path = given.get(repository["name"])
        if path is not None:
            found[repository["name"]] = measured(repository, Path(path), 1 if options.quick else None)
    if options.as_json:
        print(json.dumps(found))
    else:
        for name, figures in found.items():
            print(f"{name}: {figures}")


def measured(repository: dict[str, Any], checkout: Path, most: int | None) -> dict[str, Figure]:
    """Return right answers, questions, refusals of what is not there, and files per second.

    Args:
        repository: Its questions, each with the definitions that answer it, and what is not there.
        checkout: It is copied; nothing is written into it.
        most: Most questions asked; None = all.
    """
    with tempfile.TemporaryDirectory() as place:
        root, state = Path(place, repository["name"]), Path(place, "state")
        shutil.copytree(checkout, root, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        said = _run("survey", str(root), "--backend", "local", "--state-dir", str(state)).stdout
        speed = re.search(r"([\d,]+)\n(?=memory|report)", said)
        questions, absent = repository["questions"][:most], repository["absent"][:most]
        started = time.perf_counter()
        right = sum(_is_right(one, _places(one["question"], root, state)) for one in questions)
        seconds = (time.perf_counter() - started) / max(1, len(questions))
        return {
            "right_in_first_three": right,
            "questions": len(questions),
            "refused": sum(not _places(text, root, state) for text in absent),
            "absent": len(absent),
            "question_s": round(seconds, 2),
            "files_per_s": int(speed[1].replace(",", "")) if speed is not None else 0,
        }


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True, check=False)


def _places(question: str, root: Path, state: Path) -> list[tuple[str, str]]:
    """Return path and last part of the name of each place that a question gets."""
    done = _run("ask", question, str(root), "--json", "--limit", str(PLACES), "--state-dir", str(state))
    if done.returncode not in (0, 1):
        raise RuntimeError(f"asking {question!r} failed: {done.stderr}")
    return [(one["path"], one["name"].rpartition(".")[2]) for one in json.loads(done.stdout)["places"]]


def _is_right(question: dict[str, Any], places: list[tuple[str, str]]) -> bool:
    answers = [one.split(":") for one in question["answers"]]
    return any((path, name.rpartition(".")[2]) in places for path, name in answers)


if __name__ == "__main__":
    main()
