"""Places inside the root that tools may not see, such as the runtime's own state directory.

Room: the rule. A place is hidden by its name, so that it may be created later, and by what it is, so that
another spelling, a bind mount or a rename does not uncover it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.workspace.place import Identity, WorkspacePath, identity_of
from sessiontree.workspace.root_fd import Anchor

_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HiddenPlaces:
    """Files and directories beneath one root that are as good as not there.

    Args:
        anchor: The root.
        paths: Absolute; need not exist. What lies outside the root is no concern of this class.

    Raises:
        ConfigError: a path is relative, or hides the whole root.
    """

    __slots__ = ("_anchor", "_beneath", "_paths")

    def __init__(self, anchor: Anchor, paths: Sequence[Path]) -> None:
        """Find each path's names beneath the root."""
        self._anchor = anchor
        self._paths = tuple(paths)
        beneath = set()
        for path in self._paths:
            if not path.is_absolute():
                raise ConfigError(f"can't hide {str(path)!r}: the path is relative; give an absolute one")
            for spelling in (os.path.normpath(path), os.path.realpath(path)):
                names = anchor.relative(spelling)
                if names == ["."] or anchor.real_path.is_relative_to(spelling):
                    raise ConfigError(f"can't hide {str(path)!r}: it holds the whole workspace")
                if names is not None:
                    beneath.add("/".join(names))
        self._beneath = frozenset(beneath)

    def identities(self) -> frozenset[Identity]:
        """Return what the hidden places are at this moment; those that do not exist are left out."""
        found = set()
        for path in self._paths:
            try:
                found.add(identity_of(path.stat()))
            except OSError:  # not there: its name alone is guarded
                continue
        return frozenset(found)

    def covers(self, path: str) -> bool:
        """Whether a path beneath the root, links resolved, is hidden by its name."""
        return any(path == hidden or path.startswith(f"{hidden}/") for hidden in self._beneath)

    def hide(self, place: WorkspacePath) -> bool:
        """Whether a place is hidden by its name or lies in a directory that is hidden.

        What stands at the place is the caller's to compare with :meth:`identities`, from its descriptor.

        Raises:
            OSError: the way back to the root cannot be gone; ``EXDEV`` where it does not end there.
        """
        if not self._paths:
            return False
        if self.covers(place.path):
            return True
        identities = self.identities()
        return bool(identities) and self._lies_in(place.directory_fd, identities)

    def _lies_in(self, directory_fd: int, identities: frozenset[Identity]) -> bool:
        top = identity_of(os.fstat(self._anchor.fd))
        fd = os.dup(directory_fd)
        try:
            here = identity_of(os.fstat(fd))
            while here != top:
                if here in identities:
                    return True
                parent = os.open("..", _STEP, dir_fd=fd)
                os.close(fd)
                fd = parent
                above = identity_of(os.fstat(fd))
                if above == here:  # the machine's own root: the directory was moved out meanwhile
                    raise OSError(errno.EXDEV, "it leads outside the root")
                here = above
        finally:
            os.close(fd)
        return False
