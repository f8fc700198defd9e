"""Files that an owner writes for the runtime: who may change them, and that no session can."""

from __future__ import annotations

import os
import secrets
import shlex
import stat
from pathlib import Path
from typing import Final

from sessiontree.api.runtime.paths import list_owner_folders
from sessiontree.contracts.errors import ConfigError

MAX_BYTES: Final = 2**20
"""Maximum size of such a file."""
OTHERS_WRITE: Final = 0o022
OTHERS_USE: Final = 0o077
PRIVATE: Final = 0o600
"""Rights: of group and others to write, and to do anything; and of the owner alone to read and write."""


def check_outside(path: Path, name: str, workspace: Path | None) -> None:
    """Refuse a path where sessions write; the owner's own folders are hidden from them.

    Raises:
        ConfigError: it is in the workspace, as it is written or as its links lead.
    """
    if workspace is None:
        return
    roots = (workspace, workspace.resolve())
    spelled = Path(os.path.normpath(path.absolute()))
    hidden = list_owner_folders(workspace)
    for each in (spelled, path.resolve()):
        if not any(each.is_relative_to(root) for root in roots):
            continue
        if any(each.resolve().is_relative_to(folder) for folder in hidden):
            continue
        raise ConfigError(
            f"{name} {str(path)!r} is in the workspace {str(workspace)!r}, where sessions write; keep it "
            "outside, or give another workspace"
        )


def read_owned(path: Path, name: str, *, others_may: int = OTHERS_WRITE) -> str:
    """Return the text of a file that only its owner, this user or root, may change.

    Args:
        path: The file; links are followed.
        name: What it is, for errors.
        others_may: Rights that group and others must not have.

    Raises:
        ConfigError: it can't be read, is too long, or belongs to or is open to others.
    """
    place = f"{name} {str(path)!r}"
    try:
        text, status = open_text(path, follow=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{place} can't be read: {explain_error(error)}") from None
    fault = find_fault(path, status, others_may)
    if fault:
        raise ConfigError(f"{place} {fault}")
    folder = path.resolve().parent.stat().st_mode
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        raise ConfigError(
            f"{place}: every user may write to its folder; run: chmod o-w {path.resolve().parent}"
        )
    return text


def check_owned(path: Path, name: str) -> None:
    """Refuse a file or folder that another user than this one or root owns, or that others may write.

    Raises:
        ConfigError: it is such a one, or can't be looked at.
    """
    place = f"{name} {str(path)!r}"
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{place} can't be read: {explain_error(error)}") from None
    fault = find_fault(path, status)
    if fault:
        raise ConfigError(f"{place} {fault}")


def find_fault(path: Path, status: os.stat_result, others_may: int = OTHERS_WRITE) -> str:
    """Return why a file or folder isn't only its owner's, this user's or root's; empty = it is."""
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to another user (id {status.st_uid}); use a file of your own"
    if status.st_mode & others_may:
        taken = "go-w" if others_may == OTHERS_WRITE else "go-rwx"
        return f"is open to other users; run: chmod {taken} {shlex.quote(str(path))}"
    return ""


def replace_owned(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file in one step; a crash leaves the former file or the new one.

    Args:
        path: The file, which need not exist; a link stays, and the file that it names is replaced.
        data: All of it.
        mode: Its rights, whatever the umask.

    Raises:
        OSError: it can't be written.
    """
    place = path.resolve()
    new = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it must not exist before
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(new, mode)  # noqa: PTH101 - whatever the umask
        os.replace(new, place)  # noqa: PTH105 - as above
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_text(path: Path, *, follow: bool, max_bytes: int = MAX_BYTES) -> tuple[str, os.stat_result]:
    """Return the text of a regular file, and what the system says of the file that was opened.

    Args:
        path: The file; nothing is waited for, whatever is there.
        follow: Whether a link is followed.
        max_bytes: Maximum size.

    Raises:
        OSError: it can't be opened, is not a regular file, or is too long.
        ValueError: it is not text.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - what was opened is what is checked
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(f"it is longer than {max_bytes:,} bytes")
    return data.decode("utf-8-sig"), status


def explain_error(error: Exception) -> str:
    """Return why a file can't be read, without its content."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    return getattr(error, "strerror", None) or str(error)
