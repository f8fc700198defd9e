"""Import roots: directories whose names can be imported from anywhere in a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sessiontree.survey.whereabouts import name_of, parent_of

MAX_ROOTS = 32
"""Most roots of a tree; those that hold most stay."""

_SOURCES = frozenset(("include", "java", "kotlin", "scala", "groovy"))
"""Names of directories that hold packages or headers by convention."""


def import_roots(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the directories to look imports up in, besides those around the file that imports.

    They are: where a Python package stands that is in no other package; every ``include``, ``java``,
    ``kotlin``, ``scala`` and ``groovy``; every directory with a ``go.mod``.

    Args:
        paths: All files of the tree.

    Returns:
        Directories, those that hold most of it first, ties by name; ``.`` is the root itself.
    """
    packages: set[str] = set()
    found: Counter[str] = Counter()
    for path in paths:
        parent, name = parent_of(path), name_of(path)
        if name == "__init__.py":
            packages.add(parent)
        elif name == "go.mod":
            found[parent] += 1
        parts = parent.split("/")
        for depth, part in enumerate(parts, start=1):
            if part in _SOURCES:
                found["/".join(parts[:depth])] += 1
    for package in packages:
        if package != "." and parent_of(package) not in packages:
            found[parent_of(package)] += 1
    return tuple(sorted(found, key=lambda root: (-found[root], root))[:MAX_ROOTS])
