"""The file of a matrix: its models, suites and settings, and the cells that they make."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, field_validator

from sessiontree import ConfigError
from sessiontree.bench.run.place.run_settings import MAX_CONCURRENCY
from sessiontree.bench.suite.suite import MAX_COUNT
from sessiontree.bench.suite.workspaces import LETTERS
from sessiontree.contracts.settings.settings import StrictSettings, describe_faults
from sessiontree.contracts.values.quick_dataclass import dataclass

RUNS: Final = "runs"
MAX_CELLS: Final = 1_000
USUAL: Final = "usual"
"""Name of the settings of a file that has none: everything is as the suite says."""
Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]+$")]


class CellSettings(StrictSettings):
    """How a cell's run differs from what its suite says."""

    epochs: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """How often each sample is solved."""
    limit: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Only so many samples, the first ones."""
    sample_timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds for one sample."""
    retries: int | None = Field(default=None, ge=0)
    """How many infrastructure errors a sample may have before it has failed."""
    keep: Literal["failed", "all", "none"] | None = None
    """Whose workspaces are kept."""

    def words(self) -> list[str]:
        """Return them as options of ``bench run``."""
        names = {"sample_timeout_s": "sample-timeout"}
        given = self.model_dump(exclude_none=True)
        return [f"--{names.get(name, name)}={value}" for name, value in given.items()]


class MatrixFile(StrictSettings):
    """Which models, suites and settings are combined, and what all their runs share."""

    title: str = Field(default="", max_length=200)
    """Heads the page; empty = the file's name."""
    models: tuple[Line, ...] = ("",)
    """Models by name, as ``bench run --model`` takes them; without any, each suite's own."""
    suites: tuple[Line, ...] = Field(min_length=1)
    """Suites by name; files are found from this file's folder."""
    settings: Mapping[Line, CellSettings] = Field(
        default_factory=lambda: {USUAL: CellSettings()}, min_length=1
    )
    """Settings by name."""
    dir: str = Field(default="", max_length=4096)
    """The folder of the runs and the page, from this file's folder; empty = ``runs/`` and the file's name."""
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most US dollars that all runs together may spend."""
    concurrency: int = Field(default=16, ge=1, le=MAX_CONCURRENCY)
    """How many attempts at a time, over all runs."""
    backend: Literal["ray", "local"] = "ray"
    address: str = ""
    """The Ray cluster; empty = this machine."""
    shards: Annotated[str, StringConstraints(pattern=r"^(per-node|[1-9][0-9]*)$")] = "1"
    """How many supervisors share the trees of a run: a number, or ``per-node``; as text."""

    @field_validator("models", "suites")
    @classmethod
    def _has_each_once(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({each for each in given if given.count(each) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(repr, twice))}: given twice; give each once")
        if not given:
            raise ValueError("give at least one, or leave it out")
        return given


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One run of a matrix."""

    model: str
    """Empty = the suite's own."""
    suite: str
    """As ``bench run`` takes it: files by their absolute path."""
    shown_suite: str
    """As the file has it."""
    settings: str
    """Name of its settings."""
    chosen: CellSettings
    run_dir: Path


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """A file of a matrix, read: what all cells share, and the cells."""

    path: Path
    file: MatrixFile
    folder: Path
    """Absolute path of the folder of its runs."""
    cells: tuple[MatrixCell, ...]
    """By settings, then suite, then model."""

    @property
    def title(self) -> str:
        """Heads the page."""
        return self.file.title or self.path.stem

    @classmethod
    def read(cls, path: Path, folder: Path | None = None) -> Self:
        """Read a file.

        Args:
            path: The file, in TOML.
            folder: The folder of its runs, instead of the one that the file names.

        Raises:
            ConfigError: it can't be read, or a setting is wrong: names its line, and what is allowed.
        """
        text = _read_text(path)
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: it is no TOML: {error}") from error
        try:
            file = MatrixFile.model_validate(given)
        except ValidationError as error:
            raise ConfigError(f"{path}: {_describe_faults(error, text)}") from None
        home = path.absolute().parent
        place = folder or home / (file.dir or f"{RUNS}/{path.stem}")
        cells = _build_cells(file, home, place.absolute())
        if len(cells) > MAX_CELLS:
            raise ConfigError(f"{path}: it makes {len(cells):,} runs; at most {MAX_CELLS:,} are accepted")
        return cls(path, file, place.absolute(), cells)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the matrix {str(path)!r} can't be read: {error}; give a TOML file with suites = […]"
        ) from error


def _build_cells(file: MatrixFile, home: Path, place: Path) -> tuple[MatrixCell, ...]:
    cells, used = [], set[str]()
    for (name, chosen), suite, model in product(file.settings.items(), file.suites, file.models):
        parts = [part for part in (model, suite, name) if part]
        plain = "-".join(_replace_letters(part) for part in parts)
        label, number = plain, 1
        while label in used:  # different names may have the same letters
            number += 1
            label = f"{plain}-{number}"
        used.add(label)
        cells.append(MatrixCell(model, _resolve_suite(home, suite), suite, name, chosen, place / label))
    return tuple(cells)


def _replace_letters(name: str) -> str:
    return "".join(letter if letter in LETTERS else "_" for letter in name)


def _resolve_suite(home: Path, suite: str) -> str:
    """Return a suite's name with the absolute path of its file, if it names one."""
    file, colon, name = suite.rpartition(":")
    if suite.endswith(".toml"):
        return str(home / suite)
    return f"{home / file}{colon}{name}" if file.endswith(".py") else suite


def _describe_faults(error: ValidationError, text: str) -> str:
    """Return the faults of a file, with the line of the first."""
    first = error.errors(include_url=False)[0]["loc"]
    line = _find_line(text, first)
    said = describe_faults(error, hidden=False)
    place, fields = ("settings have", CellSettings) if len(first) > 1 else ("a matrix has", MatrixFile)
    known = f"; {place} {', '.join(sorted(fields.model_fields))}" if "no setting is called" in said else ""
    return f"{f'line {line}: ' if line else ''}{said}{known}"


_TABLE: Final = re.compile(r"^\s*\[+\s*(?P<name>.+?)\s*\]+\s*(#.*)?$")
_KEY: Final = re.compile(r"""^\s*(?P<key>"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*[.=]""")


def _find_line(text: str, place: tuple[Any, ...]) -> int:
    """Return the line that has the deepest named part of a place; 0 = none has."""
    names = [str(part) for part in place if isinstance(part, str)]
    table: list[str] = []
    best, depth = 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE.match(line):
            table = [
                part.strip().strip("\"'")
                for part in re.split(r"\.(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", found["name"])
            ]
            here = table
        elif found := _KEY.match(line):
            here = [*table, found["key"].strip("\"'")]
        else:
            continue
        if len(here) > depth and here == names[: len(here)]:
            best, depth = number, len(here)
    return best
