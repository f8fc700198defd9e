"""Ignored: which names a survey leaves out, and why.

Three tables. A directory is left out by its name alone, by its name beside a file that shows who made it, or
by a file inside that marks it.
"""

from __future__ import annotations

from collections.abc import Collection

REPORT_NAME = "SURVEY.md"
"""The survey's own report in the root; never surveyed."""

ALWAYS: dict[str, str] = {
    ".bundle": "installed packages",
    ".cache": "cache",
    ".dart_tool": "build output",
    ".eggs": "installed packages",
    ".git": "version control",
    ".gradle": "cache",
    ".hg": "version control",
    ".hypothesis": "cache",
    ".ipynb_checkpoints": "copies",
    ".jj": "version control",
    ".mypy_cache": "cache",
    ".next": "build output",
    ".nox": "virtual environments",
    ".nuxt": "build output",
    ".nyc_output": "test output",
    ".parcel-cache": "cache",
    ".pnpm-store": "installed packages",
    ".pytest_cache": "cache",
    ".pytype": "cache",
    ".ruff_cache": "cache",
    ".stack-work": "build output",
    ".svelte-kit": "build output",
    ".svn": "version control",
    ".terraform": "installed packages",
    ".tox": "virtual environments",
    ".turbo": "cache",
    ".venv": "virtual environment",
    ".vs": "editor state",
    ".yarn": "installed packages",
    "__pycache__": "cache",
    "__pypackages__": "installed packages",
    "bower_components": "installed packages",
    "CVS": "version control",
    "dist-newstyle": "build output",
    "htmlcov": "test output",
    "node_modules": "installed packages",
    "Pods": "installed packages",
}
"""Directory name to the reason."""

_JS = ("package.json",)
_JVM = ("build.gradle", "build.gradle.kts", "pom.xml", "build.sbt")
_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg")
BESIDE: dict[str, tuple[str, ...]] = {
    "_build": ("mix.exs", "dune-project", "rebar.config"),
    "bin": ("global.json",),
    "build": (*_PYTHON, *_JS, *_JVM, "CMakeLists.txt", "meson.build", "pubspec.yaml"),
    "coverage": _JS,
    "deps": ("mix.exs",),
    "dist": (*_PYTHON, *_JS),
    "obj": ("global.json",),
    "out": (*_JS, *_JVM),
    "target": ("Cargo.toml", *_JVM),
    "vendor": ("go.mod", "composer.json", "Gemfile"),
    "venv": _PYTHON,
}
"""Directory name to files; beside one of them it holds build output or installed packages."""

INSIDE: dict[str, str] = {
    "CACHEDIR.TAG": "cache",
    "pyvenv.cfg": "virtual environment",
}
"""File name to what the directory that holds it is. Source of the first: Cache Directory Tagging Standard."""


def is_ignored_directory(name: str, siblings: Collection[str]) -> bool:
    """Return whether a directory is left out without a look inside.

    Args:
        name: Its name.
        siblings: All names in its parent directory.
    """
    return (
        name in ALWAYS or name.endswith(".egg-info") or any(file in siblings for file in BESIDE.get(name, ()))
    )


def is_ignored_content(names: Collection[str]) -> bool:
    """Return whether a directory below the root is left out for a file it holds."""
    return any(mark in names for mark in INSIDE)
