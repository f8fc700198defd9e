"""The root itself: its directory held open, and the absolute names it goes by.

Room: opening the root once, and making absolute paths relative to it. Comparison is by whole names, so
``/ws-evil`` is not beneath ``/ws``.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from sessiontree.contracts.errors import ConfigError
from sessiontree.workspace.place import components


class Anchor:
    """An open root directory. The descriptor lives as long as the object, so a root renamed stays the root.

    Args:
        root: An existing directory; made absolute at once.

    Raises:
        ConfigError: it is missing or no directory.
    """

    __slots__ = ("__weakref__", "_prefixes", "fd", "real_path")

    def __init__(self, root: Path) -> None:
        try:
            self.real_path = root.resolve(strict=True)
            self.fd = os.open(self.real_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, RuntimeError, ValueError) as error:  # resolve: a loop of links, a NUL
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"can't use {str(root)!r} as workspace: {reason}") from error
        weakref.finalize(self, os.close, self.fd)
        given = tuple(components(str(root.absolute())))
        resolved = tuple(components(str(self.real_path)))
        self._prefixes = {tuple(name for name in prefix if name != ".") for prefix in (given, resolved)}

    def relative(self, absolute: str) -> list[str] | None:
        """Return an absolute path's components below the root, or None where it lies elsewhere.

        The comparison is lexical; ``..`` in what remains is left to the resolver.
        """
        names = components(absolute)
        for prefix in self._prefixes:
            if tuple(names[: len(prefix)]) == prefix:
                return names[len(prefix) :] or ["."]
        return None
