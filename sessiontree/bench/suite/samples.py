"""Samples from wherever a suite has them: a list, a function, JSONL or Parquet; each id once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow.parquet

from sessiontree import ConfigError, SessionTreeError
from sessiontree.bench.suite.suite import Sample, SuiteDefinition
from sessiontree.contracts.settings.given_values import Edge, Instance
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass

MEMBERS: Final = ("id", "input", "target", "metadata", "files")
_ROW: Final = Edge[Mapping[str, Any]](
    Annotated[Mapping[str, Any], Instance(f"a Sample, or an object with {', '.join(MEMBERS)}")]
)


def load_samples(suite: SuiteDefinition) -> list[Sample]:
    """Return the samples of a suite in order.

    Raises:
        ConfigError: a sample can't be read, or an id is there twice; says where.
    """
    given = suite.samples
    if isinstance(given, str | Path):
        return _check_unique(_from_file(suite.folder / given), f"suite {suite.name!r}")
    return _check_unique(_from_program(suite), f"suite {suite.name!r}")


def _from_program(suite: SuiteDefinition) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of a list, or of a function; what that raises is one error."""
    where = f"suite {suite.name!r}"
    try:
        found = suite.samples() if callable(suite.samples) else suite.samples
        if isinstance(found, Mapping) or not isinstance(found, Iterable):
            raise ConfigError(f"{where}: samples are {type(found).__name__}; give a list of Sample")
        for number, each in enumerate(found, 1):
            yield f"sample {number}", parse_sample(each, f"{where}, sample {number}")
    except SessionTreeError:
        raise
    except (Exception, SystemExit) as error:  # the function is the suite's own
        raise ConfigError(f"{where}: its samples can't be read: {type(error).__name__}: {error}") from error


def parse_sample(given: object, where: str) -> Sample:
    """Return a sample; an object has the members of :class:`Sample`.

    Raises:
        ConfigError: it is not a sample.
    """
    if isinstance(given, Sample):
        return given
    row = _ROW.take(given, where)
    unknown = [name for name in row if name not in MEMBERS]
    if unknown:
        raise ConfigError(
            f"{where}: no member is called {unknown[0]!r}; a sample has {', '.join(MEMBERS)}, and metadata "
            "holds whatever else there is"
        )
    members = {"id": None} | {name: value for name, value in row.items() if value is not None}
    if isinstance(members["id"], int) and not isinstance(members["id"], bool):
        members["id"] = str(members["id"])
    try:
        return Sample(**members)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_unique(samples: Iterable[tuple[str, Sample]], where: str) -> list[Sample]:
    first: dict[str, str] = {}
    found = []
    for place, sample in samples:
        if sample.id in first:
            raise ConfigError(
                f"{where}: sample id {sample.id!r} is there twice, at {first[sample.id]} and at {place}; "
                "scores are kept by id, so give each sample its own"
            )
        first[sample.id] = place
        found.append(sample)
    if not found:
        raise ConfigError(f"{where} has no samples")
    return found


def _from_file(path: Path) -> Iterator[tuple[str, Sample]]:
    try:
        if path.suffix == ".parquet":
            for number, row in enumerate(_read_rows(path), 1):
                yield f"row {number}", parse_sample(row, f"{path}, row {number}")
            return
        if path.suffix != ".jsonl":
            raise ConfigError(f"samples {str(path)!r}: the name must end in .jsonl or .parquet")
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield (
                        f"line {number}",
                        parse_sample(_parse_line(line, path, number), f"{path}, line {number}"),
                    )
    except OSError as error:
        raise ConfigError(f"samples {str(path)!r} can't be read: {error}") from error


def _parse_line(line: bytes, path: Path, number: int) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise ConfigError(f"{path}, line {number} is not JSON: {error}") from None


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file; ``metadata`` may be JSON text, or a struct."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    if isinstance(row.get("metadata"), str):
                        row["metadata"] = parse_json(row["metadata"])
                    yield row
    except (pyarrow.ArrowException, ValueError) as error:
        raise ConfigError(f"samples {str(path)!r} can't be read: {error}") from error


@dataclass(frozen=True, slots=True)
class SampleData:
    """What a run keeps of a sample: its members as text."""

    id: str
    position: int
    """Its place in the suite, from 0."""
    digest: str
    """SHA-256 (hex) of its members."""
    input: str
    """JSON, like the following."""
    target: str
    metadata: str
    files: str

    @classmethod
    def of(cls, sample: Sample, position: int) -> SampleData:
        """Return the data of a sample.

        Raises:
            ConfigError: a target or metadata has no JSON form; names the sample.
        """
        try:
            target = json.dumps(sample.target, sort_keys=True, allow_nan=False)
            metadata = json.dumps(dict(sample.metadata), sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"sample {sample.id!r}: target and metadata must be JSON values: {error}"
            ) from None
        members = (json.dumps(sample.input), target, metadata, json.dumps(sample.files))
        digest = hashlib.sha256(json.dumps([sample.id, *members]).encode()).hexdigest()
        return cls(sample.id, position, digest, *members)
