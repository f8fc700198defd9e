"""Directories outside the workspace that a session's owner allows: what one approved call reaches of them.

A directory has its own root, so a link leads neither out of it nor into it from the workspace. Its files are
named by absolute paths, in calls and in results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from sessiontree.contracts.errors import ConfigError, ToolError
from sessiontree.contracts.handles.ports import Entry, Reader, Writer, Written
from sessiontree.protected import OwnPlaces
from sessiontree.workspace.writer import WorkspaceWriter


class Router:
    """Leads absolute paths to the directories that hold them.

    Args:
        workspace: Changes the workspace; what it holds is never outside.
        roots: The writers of the directories.
    """

    __slots__ = ("_roots", "_workspace")

    def __init__(self, workspace: WorkspaceWriter, roots: Sequence[WorkspaceWriter]) -> None:
        self._workspace = workspace
        self._roots = roots

    def find_writer(self, path: str) -> WorkspaceWriter | None:
        """Return the writer of the deepest directory that holds a path; None = no directory does."""
        if not path.startswith("/") or "\0" in path or self._workspace.holds(path):
            return None
        holding = [writer for writer in self._roots if writer.holds(path)]
        return max(holding, key=lambda writer: len(writer.root), default=None)

    def allow_places(self, places: frozenset[str] | None) -> Router:
        """Return a router to writers that may change these protected places; None = none."""
        return Router(self._workspace, [each.allow_places(places or frozenset()) for each in self._roots])


class OutsideRoots:
    """The directories that one session may reach.

    Args:
        workspace: Changes the workspace; what it reaches is not outside.
        roots: Absolute paths of directories. One that is missing or hidden is reached by no path.
        hidden: Absolute paths of files or directories that are refused.
        own: Where processes of the runtime import from.
    """

    __slots__ = ("_hidden", "_opened", "_own", "_roots", "_workspace")

    def __init__(
        self, workspace: WorkspaceWriter, roots: Sequence[str], *, hidden: Sequence[Path], own: OwnPlaces
    ) -> None:
        self._workspace = workspace
        self._roots = tuple(roots)
        self._hidden = tuple(hidden)
        self._own = own
        self._opened: dict[str, WorkspaceWriter] = {}

    def place_at(self, path: str) -> frozenset[str]:
        """Return the name of the place to which a path leads now: its path and its directory's identity.

        Empty = it is beneath no directory of these, leads out of it, or is hidden.
        """
        writer = self._find_writer(path)
        if writer is None:
            return frozenset()
        with suppress(ToolError):
            return frozenset({writer.name_place(path)})
        return frozenset()

    def find_protected(self, path: str) -> frozenset[str]:
        """Return the names of the protected places to which an outside path leads now."""
        writer = self._find_writer(path)
        return frozenset() if writer is None else writer.find_places(path)

    def lead_to(self, places: frozenset[str]) -> Router:
        """Return what leads paths to the directories that hold these places."""
        found = {}
        for place in places:
            writer = self._find_writer(place.partition("\0")[0])
            if writer is not None:
                found[writer.root] = writer
        return Router(self._workspace, tuple(found.values()))

    def _find_writer(self, path: str) -> WorkspaceWriter | None:
        """Return the writer of the deepest directory that holds an absolute path; None = none does."""
        opened = [writer for root in self._roots if (writer := self._open(root)) is not None]
        return Router(self._workspace, opened).find_writer(path)

    def _open(self, root: str) -> WorkspaceWriter | None:
        writer = self._opened.get(root)
        # The directory may have been replaced since it was opened; an approval names the one that is there
        # now.
        if writer is None or not writer.is_at(Path(root)):
            try:
                writer = WorkspaceWriter(Path(root), hidden=self._hidden, own=self._own)
            except ConfigError:
                self._opened.pop(root, None)
                return None
            self._opened[root] = writer
        return writer


def _join_path(root: str, path: str) -> str:
    """Return the absolute path of a path below a root."""
    return root if path == "." else f"{root.rstrip('/')}/{path}"


class OutsideReader:
    """Reads the workspace, and directories outside of it by absolute paths.

    Args:
        usual: Reads the workspace.
        roots: Leads to the directories.
    """

    __slots__ = ("_roots", "_usual")

    def __init__(self, usual: Reader, roots: Router) -> None:
        self._usual = usual
        self._roots = roots

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes; the caller closes it."""
        return self._choose_reader(path)[1].open(path)

    def stat(self, path: str) -> Entry:
        """Return the entry at the path; links are followed."""
        root, reader = self._choose_reader(path)
        entry = reader.stat(path)
        return replace(entry, path=_join_path(root, entry.path)) if root else entry

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries, sorted by name; links are not followed."""
        root, reader = self._choose_reader(path)
        found = reader.list(path)
        return [replace(entry, path=_join_path(root, entry.path)) for entry in found] if root else found

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Yield files and links below it, depth first, sorted by name; directory links are not entered."""
        root, reader = self._choose_reader(path)
        for entry in reader.walk(path):
            yield replace(entry, path=_join_path(root, entry.path)) if root else entry

    def _choose_reader(self, path: str) -> tuple[str, Reader]:
        writer = self._roots.find_writer(path)
        return ("", self._usual) if writer is None else (writer.root, writer.reader())


class OutsideWriter:
    """Changes the workspace, and directories outside of it by absolute paths.

    Args:
        usual: Changes the workspace.
        roots: Leads to the directories.
    """

    __slots__ = ("_roots", "_usual")

    def __init__(self, usual: Writer, roots: Router) -> None:
        self._usual = usual
        self._roots = roots

    def write(
        self,
        path: str,
        data: bytes,
        *,
        expect_mtime_ns: int | None = None,
        only_new: bool = False,
        like: str | None = None,
        executable: bool | None = None,
    ) -> Written:
        """Write a file atomically; the permissions of ``like`` are taken only within one root."""
        outside = self._roots.find_writer(path)
        writer: Writer = self._usual if outside is None else outside
        if like is not None and self._roots.find_writer(like) is not outside:
            like = None
        written = writer.write(
            path,
            data,
            expect_mtime_ns=expect_mtime_ns,
            only_new=only_new,
            like=like,
            executable=executable,
        )
        return written if outside is None else replace(written, path=_join_path(outside.root, written.path))

    def remove(self, path: str, *, expect_mtime_ns: int | None = None) -> None:
        """Delete one regular file or link (the link itself)."""
        writer: Writer = self._roots.find_writer(path) or self._usual
        writer.remove(path, expect_mtime_ns=expect_mtime_ns)
