"""How a command ended, in words for the model and in fields for the journal."""

from __future__ import annotations

import signal

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.ports import Finished

EXIT_CODES = {
    126: "a program it names can't be executed",
    127: "a program it names was not found",
}
LIMITS = {
    "memory_bytes": "memory",
    "processes": "processes and threads at a time",
    "sessions": "sessions at a time",
    "file_bytes": "the size of a file",
    "disk_bytes": "room on the disk",
    "disk_files": "files on the disk",
    "scratch_bytes": "room in /tmp",
    "cpu_s": "processor time of a process",
    "output_bytes": "output",
    "open_files": "open files of a process",
}
"""What each limit bounds."""


def report_of(finished: Finished, timeout_s: float, *, bounded: bool) -> str:
    """Return the output and, where there is more to say than that it went well, how the command ended.

    Args:
        finished: What came of it.
        timeout_s: What it was given.
        bounded: Whether that is less than was asked for.
    """
    output = finished.head
    if finished.dropped_bytes:
        output += f"\n… {finished.dropped_bytes:,} bytes of output are left out here …\n{finished.tail}"
    note = _ending(finished, timeout_s, bounded=bounded)
    if finished.put_back:
        said = f"protected and put back as it was: {', '.join(finished.put_back)}"
        note = f"{note}; {said}" if note else said
    if not note:
        return output or "(no output)"
    return f"{output.rstrip()}\n({note})" if output.strip() else f"({note})"


def _ending(finished: Finished, timeout_s: float, *, bounded: bool) -> str:
    limit = _limit(finished)
    if finished.reason == "timeout":
        why = (
            "the tree's tool time-out allows no more" if bounded else "give a longer timeout if it needs one"
        )
        return f"Command timed out after {timeout_s:.1f} s and was ended with all it started; {why}"
    if finished.reason == "limit":
        return f"Command was ended: it reached the limit of {limit}"
    if finished.reason == "signal":
        return f"Command was ended by {_signal_name(finished.signal)}"
    if not finished.exit_code:
        return ""
    meaning = EXIT_CODES.get(finished.exit_code, "")
    return (
        f"Command exited with code {finished.exit_code}"
        + (f": {meaning}" if meaning else "")
        + (f"; it seems to have reached the limit of {limit}" if limit else "")
    )


def _limit(finished: Finished) -> str:
    if finished.limit is None:
        return ""
    unit = " bytes" if finished.limit.endswith("_bytes") else " s" if finished.limit.endswith("_s") else ""
    return f"{LIMITS.get(finished.limit, finished.limit)}: {finished.allowed:,}{unit}"


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def details_of(finished: Finished) -> JsonValue:
    """Return what the journal keeps."""
    return {
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "elapsed_ms": round(finished.elapsed_s * 1000),
        "dropped_bytes": finished.dropped_bytes,
        "reason": finished.reason,
        "limit": finished.limit,
        "allowed": finished.allowed,
        "put_back": list(finished.put_back),
    }
