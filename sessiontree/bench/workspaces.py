"""The workspace of an attempt: made from a template, removed or kept when the attempt has ended."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from sessiontree import ConfigError
from sessiontree.bench.suite import Sample, Suite

Keep: TypeAlias = Literal["failed", "all", "none"]
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
NAME_CHARS: Final = 60


def template_of(suite: Suite, sample: Sample) -> Path | None:
    """Return the template of a sample's workspace; None = it begins empty.

    Raises:
        ConfigError: it is missing, or is neither a directory nor an archive.
    """
    template = suite.workspace if sample.files is None else suite.folder / sample.files
    if template is None or template.is_dir():
        return template
    where = f"sample {sample.id!r}: the template {str(template)!r}"
    if not template.exists():
        raise ConfigError(f"{where} does not exist")
    if not template.name.endswith(ARCHIVES):
        raise ConfigError(f"{where} is not a directory, and its name ends in none of {', '.join(ARCHIVES)}")
    return template


def workspace_name(sample_id: str, epoch: int, number: int, lease_id: str) -> str:
    """Return the name of an attempt's directory: readable, and unique by its lease."""
    readable = "".join(letter if letter in LETTERS else "_" for letter in sample_id)[:NAME_CHARS]
    mark = hashlib.sha256(f"{sample_id} {lease_id}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{readable.lstrip('.-') or '_'}-{epoch}-{number}-{mark}"


def make_workspace(path: Path, template: Path | None) -> None:
    """Make a workspace from its template; what is in its place is removed.

    Raises:
        ConfigError: the archive holds an entry that would be outside, or can't be read.
    """
    remove_workspace(path)
    if template is None:
        path.mkdir(parents=True)
    elif template.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(template, path, symlinks=True)
    else:
        path.mkdir(parents=True)
        try:
            _unpack(template, path)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
            remove_workspace(path)
            raise ConfigError(f"the template {str(template)!r} can't be unpacked: {error}") from error


def remove_workspace(path: Path) -> None:
    """Remove a workspace, also one with directories that may not be written."""
    if not path.exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for folder in (path, *path.rglob("*")):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)


def _unpack(archive: Path, path: Path) -> None:
    if archive.suffix != ".zip":
        with tarfile.open(archive) as tar:
            tar.extractall(path, filter="data")
        return
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            name = PurePosixPath(entry.filename)
            is_link = (entry.external_attr >> 16) & 0o170000 == 0o120000
            if name.is_absolute() or ".." in name.parts or "\\" in entry.filename or is_link:
                raise ConfigError(
                    f"the template {str(archive)!r} holds {entry.filename!r}, which is a link or is outside; "
                    "pack plain files and directories"
                )
        packed.extractall(path)  # noqa: S202 - each name was checked above
