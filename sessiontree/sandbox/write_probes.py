"""Nine ways of changing files, tried on canary files.

Run by its path with a directory as argument, it uses only the standard library, tries all ways and prints the
outcomes as one JSON object. ``self_test.py`` makes the files, one for each way and named after it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

SUCCEEDED: Final = "succeeded"


def _create(folder: Path) -> None:
    (folder / "create").write_bytes(b"created")


def _overwrite(folder: Path) -> None:
    (folder / "overwrite").write_bytes(b"overwritten")


def _append(folder: Path) -> None:
    with (folder / "append").open("ab") as file:
        file.write(b"appended")


def _truncate(folder: Path) -> None:
    os.truncate(folder / "truncate", 3)


def _delete(folder: Path) -> None:
    (folder / "delete").unlink()


def _change_mode(folder: Path) -> None:
    (folder / "chmod").chmod(0o777)


def _change_times(folder: Path) -> None:
    os.utime(folder / "utime", (1, 1))


def _rename(folder: Path) -> None:
    (folder / "rename").rename(folder / "renamed")


def _link(folder: Path) -> None:
    (folder / "linked").hardlink_to(folder / "link")


ATTEMPTS: Final[Mapping[str, Callable[[Path], None]]] = {
    "create": _create,
    "overwrite": _overwrite,
    "append": _append,
    "truncate": _truncate,
    "delete": _delete,
    "chmod": _change_mode,
    "utime": _change_times,
    "rename": _rename,
    "link": _link,
}


def try_all(folder: Path) -> dict[str, str]:
    """Try every way in a directory; return ``succeeded`` or the name of the errno, such as ``EACCES``."""
    return {name: _try_write(attempt, folder) for name, attempt in ATTEMPTS.items()}


def _try_write(attempt: Callable[[Path], None], folder: Path) -> str:
    try:
        attempt(folder)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "EUNKNOWN")
    return SUCCEEDED


if __name__ == "__main__":
    sys.stdout.write(json.dumps(try_all(Path(sys.argv[1]))))
