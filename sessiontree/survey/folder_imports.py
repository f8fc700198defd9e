"""Folder imports: which folders of the surveyed tree the imports of a file lead to.

An import counts only where the file or the package it names is found in the tree. One rule per family of
languages says where to look; a name that several places hold leads to the first of them. What decides at run
time (search paths, build files, aliases of bundlers) isn't known here, so the answer is an approximation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from sessiontree.survey.whereabouts import Whereabouts, ancestors_of, from_here, joined, name_of, parent_of

C_FAMILY = frozenset(("C", "C++", "CUDA", "Objective-C", "Arduino", "GLSL", "HLSL", "Metal"))
"""Languages that include files."""

_PYTHON_FILES = (".py", ".pyi", ".pyx", ".pxd")
_JVM_FILES = (".java", ".kt", ".scala", ".groovy")
_GO_MODULE = re.compile(r"^[ \t]*module[ \t]+\"?([^\s\"]{1,300})", re.MULTILINE)
_RUST_ROOT_FILES = frozenset(("mod.rs", "lib.rs", "main.rs"))


class FolderImports:
    """Says which folders files import from, to one thread.

    Args:
        where: What stands where.
        roots: Directories to look names up in besides those around a file, see ``import_roots.py``.
    """

    def __init__(self, where: Whereabouts, roots: Sequence[str] = ()) -> None:
        self.where = where
        self.roots = roots
        self._python_roots: dict[tuple[str, str], tuple[str, ...]] = {}
        self._known: dict[tuple[str, str, str], str | None] = {}

    def of(self, path: str, language: str, references: Sequence[str]) -> tuple[str, ...]:
        """Return the folders a file imports from, without its own, ascending.

        Args:
            path: The file, relative to the root.
            language: Its language's name; only Python, Cython, JavaScript, TypeScript, the C family, Go, Rust
                and the languages of the Java machine have a rule.
            references: What it imports, as written: of Python with the names brought in, of C what is
                quoted.
        """
        find = _RULES.get(language)
        if find is None or not references:
            return ()
        folder = parent_of(path)
        # what a module of Rust can see depends on its file, elsewhere on the folder alone
        seat = path if language == "Rust" else folder
        found: set[str | None] = set()
        for reference in references:
            key = (language, seat, reference)
            if key not in self._known:
                self._known[key] = find(self, path, reference)
            found.add(self._known[key])
        return tuple(sorted(one for one in found if one is not None and one != folder))

    def around(self, folder: str) -> list[str]:
        """Return where names are looked up: the folder, those around it, then all other roots."""
        ancestors = ancestors_of(folder)
        return [*ancestors, *(root for root in self.roots if root not in ancestors)]

    def holds(self, directory: str, endings: tuple[str, ...]) -> bool:
        """Return whether a directory holds a file with one of these endings."""
        return any(name.endswith(endings) for name in self.where.at(directory).files)

    def python_roots(self, folder: str, package: str) -> tuple[str, ...]:
        """Return the roots, in order, that hold a package or module of this name.

        They are where the outermost package around the folder stands, the root itself, and the given ones.
        """
        key = (folder, package)
        known = self._python_roots.get(key)
        if known is None:
            files = [package + ending for ending in _PYTHON_FILES]
            found = []
            outside = (one for one in ancestors_of(folder) if "__init__.py" not in self.where.at(one).files)
            for root in dict.fromkeys((next(outside, "."), ".", *self.roots)):
                content = self.where.at(root)
                if package in content.directories or any(file in content.files for file in files):
                    found.append(root)
            known = self._python_roots[key] = tuple(found)
        return known

    def python_at(self, base: str, parts: Sequence[str]) -> str | None:
        """Return the folder of a module below a directory, None where it isn't there."""
        if not parts:
            return base if self.holds(base, _PYTHON_FILES) else None
        for part in parts[:-1]:
            base = joined(base, part)
        inside = joined(base, parts[-1])
        if self.holds(inside, _PYTHON_FILES):
            return inside
        files = self.where.at(base).files
        return base if any(parts[-1] + ending in files for ending in _PYTHON_FILES) else None


Find: TypeAlias = Callable[[FolderImports, str, str], "str | None"]
"""From the importing file and what it names to a folder of the tree."""


def _python(look: FolderImports, path: str, module: str) -> str | None:
    """Find a module as Python 3 does: dots go up from the own package, names are looked up in roots.

    Names of the standard library are its own, whatever directory is called the same. Source: PEP 328.
    """
    name = module.lstrip(".")
    parts = name.split(".") if name else []
    level = len(module) - len(name)
    if level:
        base = from_here(parent_of(path), "../" * (level - 1))
        return None if base is None else look.python_at(base, parts)
    if not parts or parts[0] in sys.stdlib_module_names:
        return None
    for root in look.python_roots(parent_of(path), parts[0]):
        found = look.python_at(root, parts)
        if found is not None:
            return found
    return None


def _javascript(look: FolderImports, path: str, module: str) -> str | None:
    """Find a relative module: a directory, or a file, its ending left out or another one."""
    if not module.startswith("."):
        return None
    target = from_here(parent_of(path), module)
    if target is None:
        return None
    if target == "." or name_of(target) in look.where.at(parent_of(target)).directories:
        return target if look.where.at(target).files else None
    name = name_of(target)
    stems = (f"{name}.", f"{name.rpartition('.')[0] or name}.")
    files = look.where.at(parent_of(target)).files
    return parent_of(target) if any(one == name or one.startswith(stems) for one in files) else None


def _include(look: FolderImports, path: str, name: str) -> str | None:
    """Find a quoted include: beside the file, then in the directories around it, then in roots."""
    for root in look.around(parent_of(path)):
        target = from_here(root, name)
        if target is not None and name_of(target) in look.where.at(parent_of(target)).files:
            return parent_of(target)
    return None


def _go(look: FolderImports, path: str, package: str) -> str | None:
    """Find a package below the directory whose ``go.mod`` names the module it begins with."""
    for root in look.around(parent_of(path)):
        module = _GO_MODULE.search(look.where.text_of(joined(root, "go.mod")))
        if module is not None and (package == module[1] or package.startswith(module[1] + "/")):
            target = from_here(root, package[len(module[1]) :])
            if target is not None and look.holds(target, (".go",)):
                return target
    return None


def _jvm(look: FolderImports, path: str, name: str) -> str | None:
    """Find the package of a class, of its member, or of all a package holds (``a.b.C``, ``a.b.C.d``)."""
    parts = name.strip(".").split(".")
    roots = look.around(parent_of(path))
    for root in roots:
        for length in range(len(parts), max(0, len(parts) - 3), -1):
            folder = joined(root, "/".join(parts[:length]))
            files = look.where.at(folder).files
            if look.holds(folder, _JVM_FILES) if length == len(parts) else _has_class(files, parts[length]):
                return folder
    # a file may be called otherwise than what it holds
    packages = (joined(root, "/".join(parts[:-1])) for root in roots if len(parts) > 1)
    return next((package for package in packages if look.holds(package, _JVM_FILES)), None)


def _has_class(files: Collection[str], name: str) -> bool:
    return any(name + ending in files for ending in _JVM_FILES)


def _rust(look: FolderImports, path: str, module: str) -> str | None:
    """Find a module of the own crate: from ``crate``, ``self`` or ``super`` down, as far as files go."""
    first, *parts = module.split("::")
    module_at = _rust_start(look, path, first)
    if module_at is None:
        return None
    while first == "super" and parts[:1] == ["super"]:
        module_at, parts = parent_of(module_at), parts[1:]
    is_root = not _RUST_ROOT_FILES.isdisjoint(look.where.at(module_at).files)
    folder = module_at if is_root else parent_of(module_at)
    for part in parts:
        if f"{part}.rs" in look.where.at(module_at).files:
            folder = module_at
        elif "mod.rs" in look.where.at(joined(module_at, part)).files:
            folder = joined(module_at, part)
        else:
            break
        module_at = joined(module_at, part)
    return folder if look.holds(folder, (".rs",)) else None


def _rust_start(look: FolderImports, path: str, first: str) -> str | None:
    """Return the directory below which the modules of a path's first part stand, None for other crates."""
    folder = parent_of(path)
    if first == "crate":
        crates = (one for one in ancestors_of(folder) if "Cargo.toml" in look.where.at(one).files)
        return joined(next(crates, "."), "src")
    if first not in {"self", "super"}:
        return None
    own = folder
    if name_of(path) not in _RUST_ROOT_FILES:
        own = joined(folder, name_of(path).removesuffix(".rs"))
    return own if first == "self" else parent_of(own)


_RULES: dict[str, Find] = {
    **dict.fromkeys(("Python", "Cython"), _python),
    **dict.fromkeys(("JavaScript", "TypeScript", "Vue", "Svelte"), _javascript),
    **dict.fromkeys(C_FAMILY, _include),
    "Go": _go,
    **dict.fromkeys(("Java", "Kotlin", "Scala", "Groovy"), _jvm),
    "Rust": _rust,
}
