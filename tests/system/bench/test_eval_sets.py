"""``sessiontree bench inspect-worker``: eval sets by inspect's runner protocol, each sample scored once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError
from sessiontree.bench.inspect_sets.set_documents import (
    CAPTURE,
    SELECTION,
    build_selection,
    check_versions,
    read_capture,
)
from sessiontree.bench.inspect_sets.worker_command import inspect_worker
from sessiontree.bench.inspect_sets.worker_process import START, WorkerOrder, run_here, run_on_node
from tests.system.backends.ray.test_cluster import played, short_path

__all__ = ["short_path"]  # a fixture
CLUSTER = Path(__file__).with_name("eval_set_cluster_program.py")
DEFINITION = Path(__file__).with_name("eval_set_program.py")
PATIENCE_S = 600
TASK: dict[str, Any] = {
    "name": "plain", "registry_name": "plain", "args": {}, "args_hash": "0a", "model": "mockllm/model",
    "model_args": {}, "sequence": 0, "identifier": "plain#0a/mockllm/model/1", "samples": 5, "epochs": 2,
}  # fmt: skip


class SilentScreen:
    """Shows nothing."""

    is_live = False

    def line(self, text: str) -> None:
        """Take a line."""

    def raw(self, text: str) -> None:
        """Take text."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Take a table."""


def captured(**changes: Any) -> str:
    """Return a capture with one task."""
    return json.dumps({"version": 3, "identifier_version": 3, "options": {}, "tasks": [TASK], **changes})


@pytest.mark.parametrize(("capture", "selection"), [(2, 7), (4, 7), (3, 6), (3, 8), ("3", 7), (None, 7)])
def test_other_versions_are_refused_by_name(capture: object, selection: object) -> None:
    """The refusal names the document, its version and the known one."""
    what, found, known = ("selection", selection, 7) if capture == 3 else ("capture", capture, 3)
    with pytest.raises(ConfigError, match=f"{what} version {found!r} .* speaks version {known}"):
        check_versions(capture, selection)


def test_known_versions_pass() -> None:
    """Those of the release that the suites' environment has."""
    check_versions(3, 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "can't be read"),
        ("[]", "can't be read"),
        ('{"version": 3}', "can't be read"),
        (captured(version=4), "capture version 4"),
        (captured(tasks=[]), "no task"),
        (captured(tasks=[TASK, TASK]), "a task twice: plain#0a"),
        (captured(scan={"spec": {}}), "scanners"),
    ],
)
def test_bad_captures_are_refused(text: str, said: str) -> None:
    """What a definition wrote is not believed before it is read whole."""
    with pytest.raises(ConfigError, match=said):
        read_capture(text)


def test_selection_names_one_task_and_its_log() -> None:
    """The form that version 7 takes: nothing that it does not know, and facets only together."""
    (task,) = read_capture(captured(eval_set_id="set")).tasks
    assert task.planned == 10
    assert json.loads(build_selection("set", task, "/logs", "/logs/a.eval")) == {
        "version": 7,
        "eval_set_id": "set",
        "tasks": [
            {
                "identifier": TASK["identifier"],
                "resume": "/logs/a.eval",
                "registry_name": "plain",
                "args_hash": "0a",
            }
        ],
        "overrides": {"log_dir": "/logs"},
    }
    (plain,) = read_capture(captured(tasks=[{**TASK, "registry_name": None}])).tasks
    (entry,) = json.loads(build_selection("set", plain, "/logs", None))["tasks"]
    assert entry == {"identifier": TASK["identifier"], "resume": None}


def order(place: Path, code: str) -> WorkerOrder:
    """Return the order to run a program in a directory."""
    (place / "definition.py").write_text(code)
    return WorkerOrder(
        place / "definition.py", place, SELECTION, place / "task.selection", place / "output.txt"
    )


def test_worker_gets_its_document_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the caller's shell does not turn a worker into a capture."""
    monkeypatch.setenv(CAPTURE, "left over")
    code = f"import os, sys; print(os.environ.get({CAPTURE!r}), os.environ[{SELECTION!r}], sys.argv)"
    code += "; sys.exit(3)"
    made = order(tmp_path, code)
    assert asyncio.run(run_here(made)) == 3
    assert made.read_tail() == f"None {made.document} ['{made.definition}']"
    assert run_on_node(made) == 3


def test_worker_ends_with_its_runner(tmp_path: Path) -> None:
    """Killed outright, a runner leaves no process that writes the log of a task."""
    waits = "import os, time\nos.write(1, b'begun')\nwhile True: os.read(os.open('pipe', os.O_RDONLY), 1)"
    made = order(tmp_path, waits)
    os.mkfifo(tmp_path / "pipe")
    starts = (
        "import os, subprocess, sys\n"
        f"out = open({str(made.output)!r}, 'wb')\n"
        f"subprocess.run([sys.executable, {str(START)!r}, str(os.getpid()), 'definition.py'], stdout=out)"
    )
    with subprocess.Popen([sys.executable, "-c", starts], cwd=tmp_path) as runner:
        pipe = os.open(tmp_path / "pipe", os.O_WRONLY)  # waits until the worker reads
        runner.send_signal(signal.SIGKILL)
    assert made.read_tail() == "begun"
    with pytest.raises(BrokenPipeError):
        while True:  # until its last reader has ended
            os.write(pipe, b"x" * 4096)
    os.close(pipe)


@pytest.mark.parametrize(
    ("file", "workers", "said"), [("none.py", 1, "is not a file"), (DEFINITION, 0, "--workers is 0")]
)
def test_what_cannot_begin_is_refused(tmp_path: Path, file: str | Path, workers: int, said: str) -> None:
    """No file, no workers: nothing is made."""
    with pytest.raises(ConfigError, match=said):
        inspect_worker(
            SilentScreen(),
            definition=str(file),
            log_dir=str(tmp_path / "logs"),
            env=None,
            workers=workers,
            attempts=1,
            address=None,
            as_json=False,
        )
    assert not (tmp_path / "logs").exists()


def run(place: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run the eval set; return the exit code, what was printed, and what was said."""
    command = [sys.executable, "-m", "sessiontree.cli", "bench", "inspect-worker", str(DEFINITION)]
    home = {name: str(place / "home") for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [*command, "--log-dir", "logs", "--json", *options],
        cwd=place,
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def check_counts(found: dict[str, Any], place: Path) -> None:
    """Each sample of each task is in one log once; the faulty one's second sample is an error twice."""
    rows = {each["task"]: each for each in found["tasks"]}
    assert set(rows) == {"mortal", "plain", "faulty"}
    for name, row in rows.items():
        assert row["is_complete"]
        assert (row["planned"], row["repeated"]) == (10, 0)
        assert (row["scored"], row["errors"]) == ((8, 2) if name == "faulty" else (10, 0))
    logs = sorted(path.name for path in (place / "logs").glob("*.eval"))
    assert logs == sorted(row["log"] for row in rows.values())
    listed = json.loads((place / "logs" / "eval-set.json").read_text())
    assert [each["name"] for each in listed["tasks"]] == ["mortal", "plain", "faulty"]
    assert set(json.loads((place / "logs" / "logs.json").read_text())) == set(logs)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(PATIENCE_S)
def test_each_sample_is_scored_once_after_kills(tmp_path: Path) -> None:
    """Two workers of a task are killed outright: what they had finished is not solved again."""
    (tmp_path / "DEATHS").write_text("2")
    code, found, said = run(tmp_path, "--workers", "2", "--attempts", "4")
    assert code == 0, said
    check_counts(found, tmp_path)
    assert said.count("ended with exit code -9") == 2
    solved = Counter((tmp_path / "SOLVED").read_text().splitlines())
    assert solved["plain 1 1"] == solved["mortal 1 1"] == 1
    again = run(tmp_path)
    assert again[:2] == (0, found)
    assert "attempt" not in again[2]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(PATIENCE_S)
def test_what_was_begun_too_often_is_left_and_goes_on_later(tmp_path: Path) -> None:
    """Exit code 1 while a task is incomplete; the next command resumes it."""
    (tmp_path / "DEATHS").write_text("1")
    code, found, _ = run(tmp_path, "--attempts", "1")
    rows = {each["task"]: each for each in found["tasks"]}
    assert (code, rows["mortal"]["is_complete"], rows["plain"]["is_complete"]) == (1, False, True)
    code, found, said = run(tmp_path)
    assert code == 0
    assert "mortal: resumed" in said
    assert "plain" not in said
    check_counts(found, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(PATIENCE_S)
def test_lost_ray_node_costs_no_score(tmp_path: Path, short_path: Path) -> None:
    """Three raylets, one killed, and a worker that kills itself: each sample is scored once."""
    found = played(CLUSTER, tmp_path, short_path)
    assert found["code"] == 0, found["said"]
    assert "was lost with its process or node" in found["said"]
    check_counts(found, tmp_path)
