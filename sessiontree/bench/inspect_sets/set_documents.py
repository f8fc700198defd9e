"""The documents of inspect's runner protocol: the capture of a definition, and the selection of a worker.

inspect_ai calls them no public API and counts their versions; other versions than these are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from sessiontree import ConfigError
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass

CAPTURE: Final = "INSPECT_EVAL_SET_CAPTURE"
"""Names the file to which a definition writes what it would run; it runs nothing then."""
SELECTION: Final = "INSPECT_EVAL_SET_SELECTION"
"""Names the file with the tasks that a definition runs."""
CAPTURE_VERSION: Final = 3
SELECTION_VERSION: Final = 7


@dataclass(frozen=True, slots=True)
class CapturedTask:
    """One task of an eval set, with its model."""

    identifier: str
    name: str
    model: str
    planned: int
    """How many samples it has, each epoch counted."""
    facets: Mapping[str, str]
    """What lets a worker leave other tasks unbuilt; empty = it builds all."""
    row: Mapping[str, Any]
    """The task, as the capture describes it."""


@dataclass(frozen=True, slots=True)
class CapturedSet:
    """What a definition would run."""

    set_id: str | None
    """Id that the definition gives to its eval set; None = it gives none."""
    tasks: tuple[CapturedTask, ...]


def check_versions(capture: object, selection: object) -> None:
    """Refuse an inspect_ai whose documents are of other versions.

    Raises:
        ConfigError: names the document, its version and the one that is known.
    """
    for what, found, known in (
        ("capture", capture, CAPTURE_VERSION),
        ("selection", selection, SELECTION_VERSION),
    ):
        if found != known:
            raise ConfigError(
                f"{what} version {found!r} of inspect_ai's runner protocol is not known; this release speaks "
                f"version {known}. Use an environment with inspect_ai 0.3.285"
            )


def read_capture(text: str | bytes) -> CapturedSet:
    """Return what a definition would run.

    Raises:
        ConfigError: it is of another version, is not a capture, has no task, or one task twice.
    """
    try:
        found = parse_json(text)
        check_versions(found["version"], SELECTION_VERSION)
        tasks = tuple(map(_parse_task, found["tasks"]))
        captured = CapturedSet(found.get("eval_set_id"), tasks)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the eval set's capture can't be read: {error!r}") from error
    twice = [name for name, count in Counter(each.identifier for each in tasks).items() if count > 1]
    if twice or not tasks:
        raise ConfigError(f"the eval set has {'a task twice: ' + twice[0] if twice else 'no task'}")
    if found.get("scan"):
        raise ConfigError(
            "the eval set has scanners, which this runner does not begin and end; leave them out"
        )
    return captured


def _parse_task(row: Mapping[str, Any]) -> CapturedTask:
    name, digest = row.get("registry_name"), row["args_hash"]  # what is null is left out
    facets = {"registry_name": name, "args_hash": digest} if name else {}
    planned = row["samples"] * row["epochs"]
    return CapturedTask(row["identifier"], row["name"], row["model"], planned, facets, row)


def build_selection(set_id: str, task: CapturedTask, log_dir: str, resume: str | None) -> str:
    """Return the selection of a worker that runs one task.

    Args:
        set_id: Id of the eval set, for the log.
        task: The task.
        log_dir: Where its log goes.
        resume: The task's earlier log, whose finished samples count; None = it has none.
    """
    entry = {"identifier": task.identifier, "resume": resume, **task.facets}
    document = {
        "version": SELECTION_VERSION,
        "eval_set_id": set_id,
        "tasks": [entry],
        "overrides": {"log_dir": log_dir},
    }
    return json.dumps(document)
