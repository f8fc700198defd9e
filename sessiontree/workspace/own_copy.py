"""One copy of a workspace for one child, and what remains of it when the child has ended.

A directory holds ``files`` (what the child sees as its workspace), ``git`` (a git directory of ours) and
``began.json`` (what the copy began with). At the end they are replaced by ``contents`` (the last contents of
all changed files, one after the other) and ``patch``. Nothing of it is below the child's root but ``files``.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.recorded.child_workspaces import ChangedFile, WorkspaceCopy
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.workspace.copied_files import (
    Copied,
    FileBounds,
    FileState,
    copy_files,
    read_file,
    scan_files,
)
from sessiontree.workspace.git_files import GitFiles
from sessiontree.workspace.removal import remove_tree
from sessiontree.workspace.resolver import Identity, get_file_identity

MAX_CHANGED: Final = 5_000
MAX_CHANGED_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class CopyChanges:
    """What a child changed."""

    files: tuple[ChangedFile, ...]
    patch: bytes
    """Empty = none could be made."""
    lost: str = ""
    """Why the changes could not be kept; empty = they were."""


class OwnCopy:
    """The copy in one directory. Its methods block; nothing else writes there except the child in ``files``.

    Args:
        place: The directory.
    """

    def __init__(self, place: Path) -> None:
        self._place = place

    @property
    def root(self) -> Path:
        """The child's workspace."""
        return self._place / "files"

    def make(
        self, source: Path, hidden: Sequence[Path] = (), bounds: FileBounds | None = None
    ) -> WorkspaceCopy:
        """Copy a workspace as it is now, with changes that are not committed.

        With git at its top, ignored files are left out; submodules and nested repositories, too.

        Args:
            source: The workspace.
            hidden: Files and directories that are left out, wherever they are.
            bounds: How much may be copied; None = the usual.

        Raises:
            ExecutionError: it holds too much, or can't be read. Nothing is left of the copy.
        """
        try:
            # The workspace may hold what other users of the machine must not read.
            self._place.mkdir(parents=True, mode=0o700)
            self.root.mkdir()
            how, commit, only = self._make_listing(source)
            copied = copy_files(
                str(source), str(self.root), hidden=_collect_identities(hidden), only=only, bounds=bounds
            )
            (self._place / "began.json").write_text(
                json.dumps({"git": how == "git", "files": copied.files}), "ascii"
            )
        except (OSError, ExecutionError) as error:
            self.remove()
            said = error.strerror if isinstance(error, OSError) else error.message
            raise ExecutionError(f"the workspace can't be copied: {said}") from error
        name = self._place.name
        return WorkspaceCopy(name, how, commit, copied.digest, len(copied.files), copied.bytes)

    def _make_listing(self, source: Path) -> tuple[str, str, Collection[str] | None]:
        if not (_is_folder(source / ".git") and GitFiles.is_ready()):
            return "all", "", None
        git = GitFiles(self._place / "git")
        commit = git.prepare(source)
        return "git", commit, git.list_files(source)

    def finish(self, parent: Path, commit: str) -> CopyChanges:
        """Keep what differs from the beginning; the copy itself stays until :meth:`clear`.

        Args:
            parent: The workspace it was copied from, where most of the first contents still are.
            commit: The commit that was checked out there.
        """
        try:
            began, now = self._compare()
        except (OSError, ExecutionError, ValueError) as error:
            said = error.message if isinstance(error, ExecutionError) else str(error)
            return CopyChanges((), b"", f"its workspace can't be read: {said}")
        changed = _find_changed(began, now)
        size = sum(each.bytes for each in changed)
        if len(changed) > MAX_CHANGED or size > MAX_CHANGED_BYTES:
            return CopyChanges(
                (),
                b"",
                f"{len(changed):,} files with {size:,} bytes were changed; at most {MAX_CHANGED:,} files "
                f"with {MAX_CHANGED_BYTES:,} bytes are kept",
            )
        # Race: a process of the child may still write; a file that was found may be gone when it is read.
        try:
            kept = self._keep_contents(changed)
            patch = self._patch(kept, parent, commit)
            self._write_patch(patch)
        except OSError as error:
            return CopyChanges((), b"", f"its files can't be kept: {error}")
        return CopyChanges(kept, patch)

    def _compare(self) -> tuple[Copied, Copied]:
        stored = json.loads((self._place / "began.json").read_text("ascii"))
        began = Copied({path: FileState(*values) for path, values in stored["files"].items()})
        only = None
        if stored["git"]:  # a file that the child lets git ignore still belongs to the copy
            only = GitFiles(self._place / "git").list_files(self.root) | began.files.keys()
        return began, scan_files(str(self.root), began, only=only)

    def _keep_contents(self, changed: Sequence[ChangedFile]) -> tuple[ChangedFile, ...]:
        with (self._place / "contents").open("wb") as contents:
            kept = tuple(self._keep_file(each, contents.write) for each in changed)
            contents.flush()
            # The tree records the changes as kept, and the copy itself is removed then: they must be on the
            # disk.
            os.fsync(contents.fileno())
        return kept

    def _write_patch(self, patch: bytes) -> None:
        with (self._place / "patch").open("wb") as file:
            file.write(patch)
            file.flush()
            os.fsync(file.fileno())

    def _keep_file(self, changed: ChangedFile, write: Callable[[bytes], int]) -> ChangedFile:
        if changed.unusable or not changed.after:
            return changed
        data = read_file(str(self.root), changed.path)
        write(data)
        # What a process of the child writes after its end is what is kept, or is not seen at all.
        return replace(changed, after=hashlib.sha256(data).hexdigest(), bytes=len(data))

    def _patch(self, changed: Sequence[ChangedFile], parent: Path, commit: str) -> bytes:
        if not GitFiles.is_ready():
            return b""
        folder = self._place / "compared"
        remove_tree(folder)
        git = GitFiles(self._place / "git")
        missing = []
        for side in ("a", "b"):
            (folder / side).mkdir(parents=True)
        for each in changed:
            old = self._read_first_content(git, each, parent, commit)
            new = self._read_kept_content(each)
            if each.unusable or (old is None and each.before) or (new is None and each.after):
                missing.append(each.path)
                continue
            if old is not None:
                _put(folder / "a" / each.path, old, each.was_executable)
            if new is not None:
                _put(folder / "b" / each.path, new, each.executable)
        head = "".join(f"# not in this patch: {path!a}\n" for path in missing).encode()
        try:
            return head + git.diff(folder, "a", "b")
        except ExecutionError:
            return b""
        finally:
            remove_tree(folder)

    def _read_first_content(
        self, git: GitFiles, changed: ChangedFile, parent: Path, commit: str
    ) -> bytes | None:
        """Return the content a file began with: it is in the parent's workspace, or in its commit."""
        if not changed.before:
            return None
        with suppress(OSError):
            data = read_file(str(parent), changed.path)
            # The parent works on meanwhile, so its file may have changed. The digest decides.
            if hashlib.sha256(data).hexdigest() == changed.before:
                return data
        old = git.read_committed(commit, changed.path) if commit else None
        return old if old is not None and hashlib.sha256(old).hexdigest() == changed.before else None

    def _read_kept_content(self, changed: ChangedFile) -> bytes | None:
        """Return the content of a file that was kept; None if nothing was kept, or it has changed since."""
        if changed.unusable or not changed.after:
            return None
        with suppress(OSError):
            data = read_file(str(self.root), changed.path)
            # Race: a process of the child may have written since. A patch of that would not fit what is kept.
            if hashlib.sha256(data).hexdigest() == changed.after:
                return data
        return None

    def content(self, files: Sequence[ChangedFile], path: str) -> bytes:
        """Return the last content of a changed file.

        Raises:
            ExecutionError: it is not among the files, or was damaged.
        """
        at = 0
        for each in files:
            if each.path == path and each.after and not each.unusable:
                break
            at += each.bytes if each.after and not each.unusable else 0
        else:
            raise ExecutionError(f"{path!r} is no changed file with content")
        try:
            with (self._place / "contents").open("rb") as stream:
                stream.seek(at)
                data = stream.read(each.bytes)
        except OSError as error:
            raise ExecutionError(f"the changes of this child can't be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != each.after:
            raise ExecutionError(f"the kept content of {path!r} is damaged")
        return data

    def patch(self) -> bytes:
        """Return the patch.

        Raises:
            ExecutionError: it can't be read.
        """
        try:
            return (self._place / "patch").read_bytes()
        except OSError as error:
            raise ExecutionError(f"the patch of this child can't be read: {error.strerror}") from error

    def clear(self) -> None:
        """Remove the copy itself; what was kept of it stays."""
        for name in ("files", "git", "compared", "began.json"):
            if os.path.lexists(self._place / name):
                remove_tree(self._place / name)

    def remove(self) -> None:
        """Remove everything."""
        if os.path.lexists(self._place):
            remove_tree(self._place)


def _find_changed(began: Copied, now: Copied) -> list[ChangedFile]:
    found = []
    for path in sorted(began.files.keys() | now.files.keys()):
        old, new = began.files.get(path), now.files.get(path)
        if old and new and (old.digest, old.executable) == (new.digest, new.executable):
            continue
        found.append(
            ChangedFile(
                path=path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
                before="" if old is None else old.digest,
                after="" if new is None else new.digest,
                bytes=0 if new is None else new.bytes,
                executable=new is not None and new.executable,
                was_executable=old is not None and old.executable,
                unusable=_find_obstacle(path, old, new),
            )
        )
    return found


def _find_obstacle(path: str, old: FileState | None, new: FileState | None) -> str:
    if (old is not None and old.is_link) or (new is not None and new.is_link):
        return "it is or was a link"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return ""


def _put(path: Path, data: bytes, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if executable:
        path.chmod(0o755)


def _collect_identities(paths: Sequence[Path]) -> frozenset[Identity]:
    found = set()
    for path in paths:
        with suppress(OSError):
            found.add(get_file_identity(path.stat()))
    return frozenset(found)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
