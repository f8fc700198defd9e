"""The program that reads what a surveyed file says; whoever starts it can end it.

Patterns, parsers and libraries meet the text of a file here alone: whatever the text makes of them costs this
process. It reads requests from its standard input and answers each on its standard output.
Not here: starting and ending it (file_process.py).
"""

from __future__ import annotations

import json
import resource
import select
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from sessiontree.survey.source.records import SurveyEntry, collect_entries
from sessiontree.survey.source.source import SourceFile, collect_findings, read_source

IDLE_S = 10.0
"""How long the program waits for a request before it ends."""
MAX_MEMORY_BYTES = 2 * 2**30
"""Address space of the program."""
SOURCES = TypeAdapter(tuple[SourceFile, list[SurveyEntry]])
ENTRIES = TypeAdapter(tuple[list[SurveyEntry], int])


def answer_for(order: dict[str, Any], data: bytes) -> bytes:
    """Return the answer to one request, as JSON."""
    file = read_source(order["path"], data, order["total"])
    match order["want"]:
        case "findings":
            return collect_findings(file).model_dump_json().encode()
        case "entries":
            return ENTRIES.dump_json(collect_entries(file))
        case _:
            return SOURCES.dump_json((file, collect_entries(file)[0]))


def main(orders: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests: a line of JSON ``{want, path, total, size, limit_s}``, then data, and so on.

    An answer is its length as a line, then JSON. The first one is empty: the program has started. It ends
    with its input, or where no request comes for ``IDLE_S``: who keeps it for later has no thread to end it.
    """
    with suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    answers.write(b"0\n")
    answers.flush()
    # A request is sent when the last one is answered, so nothing of it can be in the buffer yet.
    while select.select([orders], [], [], IDLE_S)[0] and (line := orders.readline()):
        order = json.loads(line)
        data = orders.read(order["size"])
        # Unhandled, the signal ends this process, also inside a library that never returns to Python.
        signal.setitimer(signal.ITIMER_PROF, order["limit_s"])
        answer = answer_for(order, data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(b"%d\n" % len(answer))
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
