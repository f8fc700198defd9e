"""What git knows of a workspace, without its settings: which files count, and patches.

The repository's own git directory is never git's: its settings and hooks name programs, and whoever works in
the workspace may have written them. Git runs with a git directory of ours, which borrows the repository's
objects. So no hook, filter, text conversion or monitor of the repository runs, and nothing there changes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from typing import Final

from sessiontree.contracts.errors import ExecutionError

GIT_SECONDS: Final = 120.0
MAX_OUTPUT: Final = 64 * 2**20
_MAX_REFS: Final = 16 * 2**20
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REF: Final = re.compile(r"ref: (refs/[A-Za-z0-9._/@+-]{1,200})")
_SETTINGS: Final = """[core]
\trepositoryformatversion = 0
\tbare = false
\tfsmonitor = false
\tuntrackedCache = false
\tpreloadIndex = false
\thooksPath = /dev/null
\texcludesFile = /dev/null
\tattributesFile = /dev/null
\tsymlinks = true
\tfileMode = true
"""


class GitFiles:
    """A git directory of ours for one copy of a repository's files.

    Args:
        place: Where it is; made on first use.
    """

    def __init__(self, place: Path) -> None:
        self._place = place

    @staticmethod
    def is_ready() -> bool:
        """Whether git is installed."""
        return find_git() is not None

    def prepare(self, workspace: Path) -> str:
        """Borrow the objects of a workspace's repository.

        Returns:
            The commit that is checked out there, in hexadecimal; empty = it has none, or git can't read it.
        """
        (self._place / "objects/info").mkdir(parents=True)
        (self._place / "refs").mkdir()
        (self._place / "HEAD").write_text("ref: refs/heads/none\n")
        (self._place / "config").write_text(_SETTINGS)
        objects = workspace / ".git/objects"
        if not _is_folder(objects):
            return ""
        (self._place / "objects/info/alternates").write_bytes(_quote(objects) + b"\n")
        commit = read_head_commit(workspace / ".git")
        if commit:
            try:
                self._run(["read-tree", commit], workspace)
            except ExecutionError:  # objects of another format, or damaged
                return ""
        return commit

    def list_files(self, workspace: Path) -> frozenset[str]:
        """Return the paths that the commit has or that are not ignored, as ``os.fsdecode`` spells them.

        Raises:
            ExecutionError: git failed or took too long.
        """
        words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        return frozenset(os.fsdecode(name) for name in self._run(words, workspace).split(b"\0") if name)

    def read_committed(self, commit: str, path: str) -> bytes | None:
        """Return a file of a commit; None if the commit does not have it."""
        try:
            return self._run(["cat-file", "blob", f"{commit}:{path}"], self._place)
        except (ExecutionError, ValueError):
            return None

    def diff(self, folder: Path, before: str, after: str) -> bytes:
        """Return the differences of two directories in a folder of ours, as a patch with binary content.

        Raises:
            ExecutionError: git failed or took too long, or the patch is too long.
        """
        words = ["diff", "--no-index", "--binary", "--full-index", "--no-ext-diff", "--no-textconv"]
        words += ["--no-renames", "--no-color", "--no-prefix", "--", before, after]
        return self._run(words, folder, good=(0, 1))

    def _run(self, words: Sequence[str], workspace: Path, good: tuple[int, ...] = (0,)) -> bytes:
        program = find_git()
        if program is None:
            raise ExecutionError("git is not installed")
        # Nothing of our own environment is passed on: its GIT_ variables and its PATH could name programs.
        environment = {
            "PATH": os.defpath,
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_DIR": str(self._place),
            "GIT_WORK_TREE": str(workspace),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",
        }
        with subprocess.Popen(  # noqa: S603 - see the import
            [program, "--no-pager", *words],
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            return _read_output(process, words[0], good)


def _read_output(process: subprocess.Popen[bytes], verb: str, good: tuple[int, ...]) -> bytes:
    """Return what a process writes until it ends; kill it when it takes too long or writes too much."""
    # A timeout of `wait` would come too late: reading blocks before it, as long as git writes nothing.
    timer = Timer(GIT_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        data = process.stdout.read(MAX_OUTPUT + 1)
        if len(data) > MAX_OUTPUT:
            process.kill()
            raise ExecutionError(f"git {verb} wrote more than {MAX_OUTPUT:,} bytes")
        code = process.wait()
    finally:
        timer.cancel()
    if code not in good:
        raise ExecutionError(f"git {verb} failed with code {code}, or took more than {GIT_SECONDS:g} s")
    return data


def read_head_commit(git: Path) -> str:
    """Return the commit that a git directory has checked out; empty if it can't be read.

    Only files are read, so that no setting of the repository has an effect.
    """
    text = _read_text(git / "HEAD", 1000)
    # References may lead to each other in a circle.
    for _ in range(5):
        if _COMMIT.fullmatch(text):
            return text
        named = _REF.fullmatch(text)
        # The workspace wrote this file: a name with `..` would lead out of the git directory.
        if named is None or ".." in named[1]:
            return ""
        text = _read_text(git / named[1], 1000) or _find_packed(git, named[1])
    return ""


def _find_packed(git: Path, name: str) -> str:
    for line in _read_text(git / "packed-refs", _MAX_REFS).splitlines():
        if line.endswith(f" {name}"):
            return line.partition(" ")[0]
    return ""


def _read_text(path: Path, most: int) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return stream.read(most).decode("utf-8", "replace").strip()


def _is_folder(path: Path) -> bool:
    """Whether a path and the one above it are directories, not links to them."""
    try:
        return all(stat.S_ISDIR(each.lstat().st_mode) for each in (path.parent, path))
    except OSError:
        return False


def _quote(path: Path) -> bytes:
    """Return a path as git reads it in a list of object directories: quoted like a text of C."""
    escaped = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def find_git() -> str | None:
    """Return the path of the system's git; what a workspace offers does not count."""
    return shutil.which("git", path=os.defpath)
