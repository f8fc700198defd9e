"""Keys by name: the environment variable or the file of a machine that holds a provider's key.

A name is ``env:VARIABLE`` or ``file:/path``. It may be shown, stored and sent to other machines; the key is
read where it is used. Not here: how a key reaches the model gateway (``backends/ray/client/key_server.py``).
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfigError

OF_VARIABLE: Final = "env:"
OF_FILE: Final = "file:"
MAX_NAME_BYTES: Final = 4_096
MAX_FILE_BYTES: Final = 65_536
_OTHERS: Final = 0o077
_NAME: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00-\x1f]+")


def check_key_name(name: object, place: str) -> str:
    """Return the name of a key as it is.

    Args:
        name: What was given.
        place: Where, for the error.

    Raises:
        ConfigError: it is not such a name; it may be a key, so the error does not show it.
    """
    if isinstance(name, str) and _NAME.fullmatch(name) and len(os.fsencode(name)) <= MAX_NAME_BYTES:
        return name
    raise ConfigError(f"{place}: name the key's place, as 'env:OPENAI_API_KEY' or 'file:/run/secrets/openai'")


def read_named_key(name: str) -> str:
    """Return the text at the place of this machine that a key's name says. Blocks.

    Raises:
        ConfigError: nothing is there, or other users may read it.
    """
    if name.startswith(OF_VARIABLE):
        variable = name.removeprefix(OF_VARIABLE)
        text = os.environ.get(variable, "").strip()
        if not text:
            raise ConfigError(f"the variable {variable} is not set; set it to the key")
        return text
    return _read_file(Path(name.removeprefix(OF_FILE)))


def _read_file(path: Path) -> str:
    place = f"the key's file {str(path)!r}"
    try:
        # Without waiting: a named pipe at this place would block the process until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - what was opened is what is checked
            status = os.fstat(descriptor)
            data = file.read(MAX_FILE_BYTES) if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise ConfigError(f"{place} can't be read: {error.strerror}") from None
    # Judged by what was opened, since the path could be replaced between a check and the reading.
    if status.st_uid not in {0, os.geteuid()}:
        raise ConfigError(f"{place} belongs to another user (id {status.st_uid}); use a file of your own")
    if status.st_mode & _OTHERS:
        raise ConfigError(f"{place} is open to other users; run: chmod go-rwx {shlex.quote(str(path))}")
    text = data.decode("ascii", "replace").strip()
    if not text:
        raise ConfigError(f"{place} holds no key; write the key into it")
    return text
