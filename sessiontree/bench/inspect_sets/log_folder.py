"""The logs of an eval set in their directory: which tasks are complete, and what is left of earlier attempts.

Runs where inspect_ai is installed; it is the only one that writes the directory's own files.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from inspect_ai._eval.evalset import eval_set_id_for_log_dir, task_identifier
from inspect_ai.log import (
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample_summaries,
    write_log_dir_manifest,
)
from inspect_ai.log._recorders.buffer.buffer import cleanup_sample_buffers_for_log

from sessiontree import ConfigError
from sessiontree.bench.inspect_sets.set_documents import CapturedSet, CapturedTask
from sessiontree.contracts.values.quick_dataclass import dataclass

WORK: Final = ".sessiontree"
"""Directory of this runner's own files in that of the logs."""


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How far a task is."""

    task: str
    model: str
    planned: int
    scored: int = 0
    """Samples that have scores, each epoch counted."""
    errors: int = 0
    """Samples that ended in an error."""
    repeated: int = 0
    """Samples that are in its log more than once; 0 unless a log was altered."""
    log: str = ""
    """File name of its log; empty = it has none."""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log of the directory."""

    info: Any
    """What inspect knows by its name."""
    header: Any
    """What it says of itself; None = it can't be read."""
    identifier: str
    """Of its task; empty = it can't be read."""


class LogFolder:
    """The directory of an eval set's logs.

    Args:
        path: The directory, absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / WORK

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be its only runner for the block.

        Raises:
            ConfigError: another command runs an eval set there, or it can't be written.
        """
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.work / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"--log-dir {str(self.path)!r} can't be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise ConfigError(
                f"another command runs an eval set in {str(self.path)!r}; wait for it"
            ) from error
        finally:
            os.close(descriptor)

    def ensure_id(self, given: str | None) -> str:
        """Return the id of the eval set in it; the first command makes one if the definition gives none."""
        return str(eval_set_id_for_log_dir(str(self.path), given))

    def find_newest(self, task: CapturedTask) -> FoundLog | None:
        """Return the newest log of a task; None = it has none."""
        logs = self._list_task_logs(task)
        return logs[0] if logs else None

    def _list_task_logs(self, task: CapturedTask) -> list[FoundLog]:
        logs = [each for each in self._list_logs() if each.identifier == task.identifier]
        return sorted(logs, key=lambda log: log.info.mtime or 0, reverse=True)

    def _list_logs(self) -> Iterator[FoundLog]:
        """Yield all logs. What a worker is writing, or was when it was killed, may be unreadable."""
        for info in list_eval_logs(str(self.path)):
            try:
                header = read_eval_log(info, header_only=True)
                found = FoundLog(info, header, task_identifier(header, None))
            except Exception:  # noqa: BLE001 - half a log may be broken in any way
                found = FoundLog(info, None, "")
            yield found

    def finish(self, set_id: str, captured: CapturedSet) -> list[TaskCount]:
        """Remove what later attempts replace, list what is left for inspect's viewer, and count it."""
        counts, rows, done = [], [], set()
        for task in captured.tasks:
            logs = self._list_task_logs(task)
            complete = [log for log in logs if is_complete(log, task)]
            kept = complete[0] if complete else next(iter(logs), None)
            if complete:
                self._remove(log for log in logs if log is not kept)
                done.add(complete[0].header.eval.task_id)
            counts.append(_count(task, kept))
            rows.append(_build_row(task, task.identifier if kept is None else kept.header.eval.task_id))
        self._remove(log for log in self._list_logs() if log.header is None and log.info.task_id in done)
        listing = json.dumps({"eval_set_id": set_id, "tasks": rows})
        fresh = self.work / "eval-set.new"
        fresh.write_text(listing, "utf-8")
        fresh.replace(self.path / "eval-set.json")
        if all(log.header is not None for log in self._list_logs()):  # half a log would end the listing
            write_log_dir_manifest(str(self.path))
        return counts

    def _remove(self, logs: Iterator[FoundLog]) -> None:
        """Remove logs whose workers have all ended, with the samples that they had buffered."""
        for log in logs:
            if log.header is None or log.header.status == "started":
                cleanup_sample_buffers_for_log(log.info.name)
            Path(log.info.name.removeprefix("file://")).unlink(missing_ok=True)


def is_complete(log: FoundLog, task: CapturedTask) -> bool:
    """Whether a log holds all samples of its task; those that ended in an error count."""
    if log.header.status != "success" or log.header.invalidated:
        return False
    found = {
        (each.id, each.epoch) for each in read_eval_log_sample_summaries(log.info.name) if each.completed
    }
    return len(found) >= task.planned


def _count(task: CapturedTask, log: FoundLog | None) -> TaskCount:
    if log is None:
        return TaskCount(task.name, task.model, task.planned)
    samples: Sequence[Any] = read_eval_log(log.info.name).samples or ()
    keys = Counter((each.id, each.epoch) for each in samples)
    return TaskCount(
        task.name,
        task.model,
        task.planned,
        sum(1 for each in samples if each.scores and each.error is None),
        sum(1 for each in samples if each.error is not None),
        sum(1 for count in keys.values() if count > 1),
        Path(log.info.name).name,
        is_complete(log, task),
    )


def _build_row(task: CapturedTask, task_id: str) -> dict[str, Any]:
    """Return a task as inspect's viewer lists it."""
    row = task.row
    names = ("name", "model", "model_args", "model_roles", "sequence")
    listed = {name: row.get(name) for name in names}
    return {**listed, "task_id": task_id, "task_file": row.get("file"), "task_args": row["args"]}
