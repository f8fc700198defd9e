"""The workspace of an attempt: made from a template, removed or kept when the attempt has ended.

Directories and archives become a workspace by the same rules: files, directories and relative links that stay
inside; nothing else. Python's ``tarfile`` has filters for that only from 3.11.4, so they are not used.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import logging
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Final, Literal, TypeAlias, cast

from sessiontree import ConfigError, ExecutionError
from sessiontree.bench.suite.suite import Sample, SuiteDefinition
from sessiontree.workspace.copied_files import FileCopy
from sessiontree.workspace.removal import remove_tree

Keep: TypeAlias = Literal["failed", "all", "none"]
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
NAME_CHARS: Final = 60
MAX_BYTES: Final = 4 * 2**30
"""Most bytes that a workspace may begin with: a small archive can hold very large files."""
MAX_ENTRIES: Final = 1_000_000
MAX_HEADER: Final = 1 << 16
"""Most bytes of one extended header of an archive: a long name, a comment, attributes."""
MAX_HEADER_BYTES: Final = 128 * 2**20
"""Most bytes of all of them together."""
_NEAR: Final = 1 << 20
_CHUNK: Final = 1 << 20
_LOG = logging.getLogger("sessiontree")


def find_template(suite: SuiteDefinition, sample: Sample) -> Path | None:
    """Return the template of a sample's workspace; None = it begins empty.

    Raises:
        ConfigError: it is missing, is neither a directory nor an archive, or is a sample's and not inside the
            suite's folder.
    """
    template = suite.workspace if sample.files is None else suite.folder / sample.files
    if template is None:
        return None
    where = f"sample {sample.id!r}: the template {str(template)!r}"
    if sample.files is not None and not _is_inside(template, suite.folder):
        raise ConfigError(
            f"{where} is not inside the suite's folder {str(suite.folder)!r}; put the sample's files there"
        )
    if template.is_dir():
        return template
    if not template.exists():
        raise ConfigError(f"{where} does not exist")
    if not template.name.endswith(ARCHIVES):
        raise ConfigError(f"{where} is not a directory, and its name ends in none of {', '.join(ARCHIVES)}")
    return template


def make_workspace_name(sample_id: str, epoch: int, number: int, lease_id: str) -> str:
    """Return the name of an attempt's directory: readable, and unique by its lease."""
    readable = "".join(letter if letter in LETTERS else "_" for letter in sample_id)[:NAME_CHARS]
    mark = hashlib.sha256(f"{sample_id} {lease_id}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{readable.lstrip('.-') or '_'}-{epoch}-{number}-{mark}"


def make_workspace(
    path: Path, template: Path | None, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES
) -> None:
    """Make a workspace from its template; what is in its place is removed.

    Args:
        path: The workspace.
        template: A directory or an archive; None = it begins empty.
        max_bytes: Most bytes that all its files may have together.
        max_entries: Most files, directories and links that it may begin with.

    Raises:
        ConfigError: the template can't be read, is too large, or holds what leads outside or is not a file,
            directory or link. Nothing of it is left.
    """
    remove_tree(path)
    try:
        path.mkdir(parents=True)
        if template is not None:
            content = _NewContent(path, max_bytes, max_entries)
            if template.is_dir():
                _copy(template, content)
            elif template.suffix == ".zip":
                _unpack_zip(template, content)
            else:
                _unpack_tar(template, content)
            content.finish()
    except Exception as error:  # a damaged archive raises almost anything
        remove_tree(path)
        is_plain = isinstance(error, ConfigError | ExecutionError | OSError)
        raise ConfigError(
            f"workspace {path.name!r}: the template {str(template)!r} can't be "
            f"{'unpacked' if template is None or not template.is_dir() else 'copied'}: "
            f"{error if is_plain else f'{type(error).__name__}: {error}'}"
        ) from error


class _NewContent:
    """Writes what a template holds into a new workspace, and refuses what does not belong there."""

    def __init__(self, root: Path, max_bytes: int, max_entries: int) -> None:
        self.root = root
        """The workspace."""
        self.max_bytes = max_bytes
        self._max_entries = max_entries
        self._bytes = 0
        self._entries = 0
        self._links: dict[Path, str] = {}

    def folder(self, name: str, mode: int) -> None:
        """Make a directory that its owner may change."""
        place = self._place(name)
        place.mkdir(parents=True, exist_ok=True)
        if place != self.root:
            place.chmod((mode & 0o777) | 0o700)

    def file(self, name: str, source: IO[bytes], mode: int, modified_s: float | None = None) -> None:
        """Write a file that its owner may change, without the rights of another user."""
        place = self._place(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as made:
            while data := source.read(_CHUNK):
                self.count(len(data))
                made.write(data)
        # Without the bits that run a file as its owner: an archive may say anything, and root may unpack it.
        place.chmod((mode & 0o777) | 0o600)
        if modified_s is not None:
            with suppress(OSError, OverflowError, ValueError):  # an archive may say anything
                os.utime(place, (modified_s, modified_s))

    def count(self, more: int) -> None:
        """Count bytes that were read.

        Raises:
            ConfigError: they are too many.
        """
        self._bytes += more
        if self._bytes > self.max_bytes:
            raise ConfigError(f"its files have more than {self.max_bytes:,} bytes; make it smaller")

    def link(self, name: str, target: str) -> None:
        """Count and note a link."""
        self.note_link(self._place(name), target)

    def note_link(self, place: Path, target: str) -> None:
        """Note a link; links are made last, so that nothing is written through one."""
        self._links[place] = target

    def refuse(self, name: str) -> None:
        """Refuse a pipe, a socket or a device.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{name!r} is neither a file, a directory nor a link; leave it out")

    def finish(self) -> None:
        """Make the links.

        Raises:
            ConfigError: one leads outside.
        """
        for place, target in self._links.items():
            # Nothing may be made below a link, which could lead outside before it is checked.
            through = any(folder in self._links for folder in place.parents)
            self._check_link(place, target, PurePosixPath(target).is_absolute() or through)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        for place, target in self._links.items():
            self._check_link(place, target, not _is_inside(place, self.root))

    def _check_link(self, place: Path, target: str, is_outside: bool) -> None:
        if is_outside:
            raise ConfigError(
                f"{str(place.relative_to(self.root))!r} is a link to {target!r}, which is outside; use a "
                "relative link to what the template holds"
            )

    def count_entries(self, more: int) -> None:
        """Count files, directories and links.

        Raises:
            ConfigError: they are too many.
        """
        self._entries += more
        if self._entries > self._max_entries:
            raise ConfigError(f"it has more than {self._max_entries:,} entries; make it smaller")

    def _place(self, name: str) -> Path:
        self.count_entries(1)
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise ConfigError(f"{name!r} is outside; pack names below the workspace")
        return self.root / parts


def _is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path leads into a folder, links followed."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a circle of links, or a name that no file can have
        return False


class _TemplateCopy(FileCopy):
    """Copies all that a directory holds, ``.git`` too; what may not be in a workspace is refused."""

    def __init__(self, content: _NewContent) -> None:
        super().__init__()
        self._content = content

    def takes(self, path: str, name: str, status: os.stat_result) -> bool:
        return True

    def can_take_opened(self, status: os.stat_result) -> bool:
        return True

    def count(self, entries: int, more: int) -> None:
        self._content.count_entries(entries)

    def count_folder(self, path: str) -> None:
        self._content.count_entries(1)

    def fill(self, old: int, new: int, status: os.stat_result) -> tuple[str, int]:
        if status.st_size and self.share_content(old, new):
            size = os.fstat(new).st_size
            self._content.count(size)
            return "", size
        size = 0
        while data := os.read(old, _CHUNK):
            self._content.count(len(data))
            left = memoryview(data)
            while left:
                left = left[os.write(new, left) :]
            size += len(data)
        return "", size

    def note_file(self, path: str, new: int, status: os.stat_result, digest: str, size: int) -> None:
        os.utime(new, ns=(status.st_mtime_ns, status.st_mtime_ns))

    def note_folder(self, path: str, made: int, status: os.stat_result) -> None:
        os.fchmod(made, (status.st_mode & 0o777) | 0o700)

    def take_link(self, path: str, to: str, name: str, target: int) -> None:
        self._content.note_link(self._content.root / path, to)

    def refuse(self, path: str) -> None:
        self._content.refuse(path)

    def note_gone(self, path: str) -> None:
        # A sample whose workspace lacks a file would be scored for what is not its fault.
        raise ConfigError(f"{path!r} changed while it was copied; leave the template as it is")


def _copy(template: Path, content: _NewContent) -> None:
    # Otherwise the copy would find itself in the template, and go on until the disk is full.
    if _is_inside(content.root, template):
        raise ConfigError("the run's directory is inside it, so it would hold itself; use another one")
    _TemplateCopy(content).copy(str(template.resolve()), str(content.root))


class _TarSource:
    """An archive as ``tarfile`` reads it: what is unpacked in memory and on the way is counted.

    ``tarfile`` reads a long name or other extended header whole, whatever its size, and goes back in a
    compressed archive by unpacking it from the beginning.
    """

    def __init__(self, source: IO[bytes], max_bytes: int) -> None:
        self._source = source
        self._left = max_bytes
        self._headers = MAX_HEADER_BYTES
        self.is_in_file = False
        """Whether the content of a file is read, which is counted when it is written."""

    def read(self, size: int) -> bytes:
        """Read at most as many bytes.

        Raises:
            ConfigError: they are a header that is too long, or one too many.
        """
        if not self.is_in_file and size != tarfile.BLOCKSIZE:
            self._headers -= size
            if size > MAX_HEADER or self._headers < 0:
                raise ConfigError(
                    f"a header of it has {size:,} bytes; at most {MAX_HEADER:,} are read, and "
                    f"{MAX_HEADER_BYTES:,} of all together; pack shorter names and attributes"
                )
        return self._source.read(size)

    def seek(self, place: int) -> int:
        """Go to a place.

        Raises:
            ConfigError: too much would have to be unpacked.
        """
        at = self._source.tell()
        self._left -= place - at if place >= at else max(place - _NEAR, 0)
        if self._left < 0:
            raise ConfigError("more of it would have to be unpacked than its files may have; make it smaller")
        return self._source.seek(place)

    def tell(self) -> int:
        """Return the place."""
        return self._source.tell()


@contextmanager
def _decompress(archive: Path) -> Iterator[BinaryIO]:
    with archive.open("rb") as packed:
        begin = packed.read(6)
        packed.seek(0)
        if begin.startswith(b"\x1f\x8b"):
            with gzip.open(packed) as source:
                yield cast("BinaryIO", source)
        elif begin.startswith(b"BZh"):
            with bz2.open(packed) as source:
                yield cast("BinaryIO", source)
        elif begin == b"\xfd7zXZ\0":
            with lzma.open(packed) as source:
                yield cast("BinaryIO", source)
        else:
            yield packed


def _unpack_tar(archive: Path, content: _NewContent) -> None:
    with _decompress(archive) as unpacked:
        source = _TarSource(unpacked, content.max_bytes + MAX_HEADER_BYTES)
        with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r:") as tar:
            _take_tar(tar, source, content)


def _take_tar(tar: tarfile.TarFile, counted: _TarSource, content: _NewContent) -> None:
    for entry in tar:
        if entry.isdir():
            content.folder(entry.name, entry.mode)
        elif entry.issym():
            content.link(entry.name, entry.linkname)
        elif (entry.isfile() or entry.islnk()) and (source := tar.extractfile(entry)) is not None:
            counted.is_in_file = True
            with source:
                content.file(entry.name, source, entry.mode, entry.mtime)
            counted.is_in_file = False
        else:
            content.refuse(entry.name)
    counted.is_in_file = True
    while tar.fileobj is not None and (rest := tar.fileobj.read(_CHUNK)):  # the check sum is at its end
        content.count(len(rest))


def _unpack_zip(archive: Path, content: _NewContent) -> None:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            mode = entry.external_attr >> 16
            if stat.S_ISLNK(mode) or "\\" in entry.filename:
                raise ConfigError(
                    f"{entry.filename!r} is a link or is outside; pack plain files and directories"
                )
            if entry.is_dir():
                content.folder(entry.filename, mode or 0o755)
            else:
                with packed.open(entry) as source:
                    content.file(entry.filename, source, mode or 0o644)
