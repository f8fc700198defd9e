"""A store as NDJSON text: for audit, for other places, and for the day its files are lost.

The manifest, then the records, oldest first, then the trees whose Main has finished, then the end::

    {"sessiontree_memory_export":1,"exported_at_ms":...,"embedder":"hashing-384-v1"}
    {"record":{"id":...,"type":"fact","text":...,"source":"src/app.py#L3-L9","trust":...,"tree_id":...,...}}
    {"finished":{"tree_id":...,"agent_id":...,"workspace":...,"ended_at_ms":...}}
    {"end":true,"records":1,"finished":1,"by_type":{"fact":1},"sha256":...}

Vectors are left out: they are made anew where it is imported. Counts and digest (of all bytes before the last
line) stand at the end, so that an export runs beside a writer and one that was cut is noticed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.contracts.memory import MemoryRecord
from sessiontree.memory.finished import FinishedTree
from sessiontree.memory.migrations import LADDER

FORMAT: Final = "sessiontree_memory_export"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export holds."""

    records: int
    finished: int
    """Trees whose Main has finished."""
    by_type: Mapping[str, int]
    """How many records are of each type."""


async def write_export(
    batches: AsyncIterable[Sequence[MemoryRecord]],
    finished: Iterable[FinishedTree],
    out: BinaryIO,
    *,
    embedder: str,
    at_ms: int,
) -> Exported:
    """Write an export.

    Args:
        batches: All records, oldest first.
        finished: The trees whose Main has finished.
        out: Where to; the caller closes it.
        embedder: Identity of the store's embedder.
        at_ms: Now.
    """
    digest = hashlib.sha256()
    by_type: Counter[str] = Counter()
    trees = 0

    def write(line: Mapping[str, JsonValue]) -> None:
        text = f"{dump_json(line)}\n".encode("ascii")
        digest.update(text)
        out.write(text)

    write({FORMAT: LADDER.current, "exported_at_ms": at_ms, "embedder": embedder})
    async for batch in batches:
        for record in batch:
            write({"record": members_of(record)})
            by_type[record.type] += 1
    for tree in finished:
        write({"finished": asdict(tree)})
        trees += 1
    exported = Exported(by_type.total(), trees, dict(sorted(by_type.items())))
    write({"end": True, **asdict(exported), "sha256": digest.hexdigest()})
    out.flush()
    return exported


def members_of(record: MemoryRecord) -> dict[str, JsonValue]:
    """Return a record as one flat object, without what it is to the session that asked."""
    members = asdict(record)
    del members["is_own"]
    scope = members.pop("scope")
    return {**members, **scope}


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file only its owner may read, that takes the place of ``path`` once it is whole and on disk.

    A link is followed; what is no file, such as a device, a pipe or a directory, is not replaced.

    Raises:
        OSError: it can't be written; what was there before is as it was.
    """
    if path.exists() and not path.is_file():
        reason = (
            "it is no regular file and would be replaced by one; give another name, or - for standard output"
        )
        raise FileExistsError(errno.EEXIST, reason, str(path))
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
