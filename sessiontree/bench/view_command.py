"""The command ``sessiontree bench view``: runs in a browser until Ctrl-C, or as a folder of files."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from sessiontree.api.runtime.paths import make_absolute
from sessiontree.bench.result_commands import find_run
from sessiontree.bench.results.recorded_run import LEDGER, RecordedRun
from sessiontree.bench.view.run_folder import write_folder
from sessiontree.bench.view.run_server import make_server


class ViewScreen(Protocol):
    """Takes lines."""

    def line(self, text: str) -> None:
        """Show one line at once."""


def view(screen: ViewScreen, *, runs: Sequence[str], html: str | None, port: int, opens: bool) -> int:
    """Show runs in a browser until interrupted, or write them as a folder; return the exit code.

    Args:
        screen: Shows the address, or what was written.
        runs: Directories of runs, suites that were run from here, or directories that hold several runs.
        html: The folder to write; None = serve.
        port: The port of the server; 0 = one that is free.
        opens: Whether a browser is opened.

    Raises:
        ConfigError: a run does not exist, the extra ``serve`` is missing, or the folder can't be written.
    """
    found = find_runs(runs)
    if html is not None:
        written = write_folder(found, make_absolute(html, "--html"))
        for line in written.lines():
            screen.line(line)
        if opens:
            webbrowser.open(written.index.as_uri())
        return 0
    serving = make_server(found, port)

    def on_ready() -> None:
        where = serving.make_page_address("/")
        screen.line(f"open {where}")
        screen.line("the address lets one browser in, once; Ctrl-C ends the server, and no run")
        if opens:
            webbrowser.open(where)

    asyncio.run(serving.run(on_ready))
    return 0


def find_runs(names: Iterable[str]) -> list[RecordedRun]:
    """Return the runs that a command names, each once: those of a directory that holds several, newest first.

    Raises:
        ConfigError: a name is neither a run nor such a directory.
    """
    found: dict[Path, RecordedRun] = {}
    for name in names:
        place = make_absolute(name, "the run")
        inside = [] if (place / LEDGER).is_file() else sorted(place.glob(f"*/{LEDGER}"))
        several = [RecordedRun(each.parent) for each in inside] or [find_run(name)]
        for run in sorted(several, key=_read_start_ms, reverse=True):
            found.setdefault(run.run_dir.resolve(), run)
    return list(found.values())


def _read_start_ms(run: RecordedRun) -> int:
    return int(run.rows("SELECT coalesce(min(started_at_ms), 0) FROM attempts")[0][0])
