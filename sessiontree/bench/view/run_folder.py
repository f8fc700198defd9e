"""Runs as a folder of files that a browser opens without a server and without a network.

``index.html`` loads ``view.js``, the modules of the page. A page from a disk may not read files; it may load
scripts that stand next to it. Data is therefore written as scripts that hand one JSON text over:
``data/runs.js`` (all runs), ``data/r0.js`` (the rows of a run), ``data/r0/0/12.js`` (a sample with its tree,
loaded when it is opened).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sessiontree import ConfigError, JournalError, make_visible
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.view.run_pair import build_pair
from sessiontree.bench.view.run_table import RunTable
from sessiontree.bench.view.sample_content import read_sample
from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.jsonable import quote as as_text
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.claim import locate_journal
from sessiontree.journal.journal import Journal
from sessiontree.view.bundle import join_modules
from sessiontree.view.saved_page import format_page, save_tree

INDEX: Final = "index.html"
SCRIPT: Final = "view.js"
DATA: Final = "data"
MAX_PAIRS: Final = 100
"""Most pairs of runs whose comparison is written; the samples of others can still be read side by side."""
A_FOLDER: Final = 1_000
"""Most samples of one directory of files."""
_ENTRY: Final = "\nmountRuns(document.body, new FolderRuns());\n"
_CSP: Final = (
    "default-src 'none'; script-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types sessiontree sessiontree-files"
)
_SCRIPT_TAG: Final = f'<script src="{SCRIPT}" defer></script>'

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WrittenRuns:
    """What was written."""

    place: Path
    runs: int
    samples: int
    trees: int
    missing: tuple[str, ...]
    """Samples whose tree could not be read, each with the reason."""
    bytes: int

    @property
    def index(self) -> Path:
        """The page to open."""
        return self.place / INDEX

    def lines(self) -> list[str]:
        """Return what is said of it, one line each."""
        what = f"{self.runs:,} runs with {self.samples:,} samples and {self.trees:,} trees"
        lines = [f"wrote {what} to {self.index}, {self.bytes:,} bytes; it holds all that the sessions read"]
        if self.missing:
            lines.append(f"{len(self.missing):,} samples have no tree there; the first: {self.missing[0]}")
        return lines


def sample_place(number: int, sample_id: str, epoch: int) -> str:
    """Return what follows ``#`` in the address of a sample.

    Args:
        number: The run's number in the folder or on the server.
        sample_id: The sample, made visible.
        epoch: Its epoch.
    """
    return f"/run/{number}/sample/{quote(sample_id, safe='')}/{epoch}"


def make_address(index: Path, below: Path, sample_id: str, epoch: int) -> str:
    """Return the address of a sample of the first run of a folder, for a page in another directory.

    Args:
        index: The folder's page.
        below: The directory of the page that has the link.
        sample_id: The sample.
        epoch: Its epoch.
    """
    way = Path(os.path.relpath(index.resolve(), below.resolve())).as_posix()
    return f"{quote(way)}#{sample_place(0, make_visible(sample_id), epoch)}"


def write_folder(runs: Sequence[RecordedRun], place: Path) -> WrittenRuns:
    """Write runs as a folder; an earlier one of the same kind is replaced file by file. Blocks.

    Args:
        runs: The runs, in the order of their numbers.
        place: The directory; made if it is missing.

    Raises:
        ConfigError: it holds something else, or can't be written.
    """
    if place.exists() and not (place.is_dir() and ((place / SCRIPT).is_file() or not any(place.iterdir()))):
        raise ConfigError(f"--html {str(place)!r} holds something else; name a new directory")
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _Folder(place).write(runs)
    except OSError as error:
        raise ConfigError(f"--html {str(place)!r} can't be written: {error.strerror or error}") from error


class _Folder:
    def __init__(self, place: Path) -> None:
        self._place = place
        self._bytes = 0
        self._samples = 0
        self._trees = 0
        self._missing: list[str] = []

    def write(self, runs: Sequence[RecordedRun]) -> WrittenRuns:
        tables = [RunTable(run, number) for number, run in enumerate(runs)]
        title = ", ".join(sorted({run.suite for run in runs}))[:200]
        self._put(Path(INDEX), format_page(f"{title} · sessiontree", _CSP, _SCRIPT_TAG))
        script = join_modules("run_view.js", "source_folder.js") + _ENTRY
        self._put(Path(SCRIPT), f'"use strict";\n(() => {{\n{script}}})();\n')
        for number, table in enumerate(tables):
            self._put_data(f"r{number}", table.snapshot())
            self._write_samples(number, table)
        self._put_data(
            "runs", {"runs": [table.head() for table in tables], "pairs": dict(_compare_pairs(runs))}
        )
        return WrittenRuns(
            self._place, len(runs), self._samples, self._trees, tuple(self._missing), self._bytes
        )

    def _write_samples(self, number: int, table: RunTable) -> None:
        run = table.run
        with ExitStack() as open_journals:
            trees = _Trees(run.state_dir, open_journals)
            for row, (sample_id, epoch) in enumerate(table.keys()):
                content = read_sample(run, sample_id, epoch)
                if content["tree"]:
                    try:
                        content["frozen"] = trees.read(content["tree"])
                        self._trees += 1
                    except JournalError as error:
                        content["missing"] = describe_error(error)
                        self._missing.append(f"{content['id']}: {describe_error(error)}")
                self._put_data(f"r{number}/{row // A_FOLDER}/{row}", content)
                self._samples += 1

    def _put_data(self, name: str, value: Json) -> None:
        """Write a value as a script that hands its JSON text over, all of it ASCII."""
        self._put(Path(DATA, f"{name}.js"), f"takeFile({as_text(name)}, {as_text(dump_json(value))});\n")

    def _put(self, name: Path, text: str) -> None:
        file = self._place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        data = text.encode("utf-8")
        draft.write_bytes(data)
        draft.replace(file)
        self._bytes += len(data)


class _Trees:
    """Reads the trees of a run; each journal is opened once."""

    def __init__(self, state_dir: Path, stack: ExitStack) -> None:
        self._state_dir = state_dir
        self._stack = stack
        self._journals: dict[Path, Journal] = {}

    def read(self, tree_id: str) -> Json:
        place = locate_journal(self._state_dir, tree_id)
        journal = self._journals.get(place)
        if journal is None:
            journal = self._journals[place] = Journal.open(place, read_only=True)
            self._stack.callback(journal.release)
        return save_tree(journal, tree_id, moments=0)


def _compare_pairs(runs: Sequence[RecordedRun]) -> Iterator[tuple[str, Json]]:
    alike = (
        (first, second)
        for first, second in itertools.permutations(range(len(runs)), 2)
        if runs[first].suite == runs[second].suite
    )
    for first, second in itertools.islice(alike, MAX_PAIRS):
        yield f"{first}-{second}", build_pair(runs[first], runs[second])
