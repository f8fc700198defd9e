"""Imports: which modules a file names, per language, and the package each belongs to.

Python's come from its syntax tree (``python_source.py``); the others from lines that look like an import and
hold more than a comment.
"""

from __future__ import annotations

import re
from functools import cache

from sessiontree.survey.lines import LineIndex
from sessiontree.survey.syntax import STRING_LINE

MAX_IMPORTS = 500
"""Most module names kept of one file."""
_MAX_MATCHES = 5_000

_QUOTED = r"""['"]([^'"\n]{1,200})['"]"""
_C = (r"^[ \t]*#[ \t]*(?:include|import)[ \t]*[<\"]([^>\"\n]{1,200})[>\"]",)
_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|import)[ \t]*"([^"\n]{1,200})"', re.MULTILINE)
_JAVA = (r"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]+)",)
_JS = (
    rf"^(?=[ \t]*(?:import\b|export\b|\}}))[^'\"\n]{{0,500}}\bfrom[ \t]*{_QUOTED}",
    rf"^[ \t]*import[ \t]*{_QUOTED}",
    rf"\b(?:require|import)[ \t]*\([ \t]*{_QUOTED}",
)
_LUA = (rf"\brequire[ \t]*\(?[ \t]*{_QUOTED}",)
_RUBY = (rf"^[ \t]*(?:require|require_relative|load|gem)[ \t(]+{_QUOTED}",)
_STYLE = (rf"^[ \t]*@(?:import|use|forward)[ \t]+(?:url\()?{_QUOTED}",)

_PATTERNS: dict[str, tuple[str, ...]] = {
    "Ada": (r"^[ \t]*(?i:with)[ \t]+([\w.]+)",),
    "C": _C,
    "C#": (r"^[ \t]*(?:global[ \t]+)?using[ \t]+(?:static[ \t]+)?(?:\w+[ \t]*=[ \t]*)?([\w.]+)[ \t]*;",),
    "C++": (*_C, r"^[ \t]*(?:export[ \t]+)?import[ \t]+<?([\w.:/]+)>?[ \t]*;"),
    "CMake": (r"^[ \t]*(?i:find_package|include)[ \t]*\([ \t]*([\w./:-]+)",),
    "CSS": _STYLE,
    "CUDA": _C,
    "Clojure": (r"\[([a-z][\w.-]*\.[\w.-]+)[ \t]+:(?:as|refer)\b",),
    "Crystal": _RUBY,
    "D": (r"^[ \t]*(?:public[ \t]+|static[ \t]+)?import[ \t]+([\w.]+)",),
    "Dart": (rf"^[ \t]*(?:import|export)[ \t]+{_QUOTED}",),
    "Dockerfile": (r"^[ \t]*(?i:from)[ \t]+(?:--\S+[ \t]+)?(\S{1,200})",),
    "Elixir": (r"^[ \t]*(?:alias|import|use|require)[ \t]+([A-Z][\w.]*)",),
    "Elm": (r"^import[ \t]+([\w.]+)",),
    "Erlang": (rf"^-(?:include|include_lib)\({_QUOTED}",),
    "F#": (r"^[ \t]*open[ \t]+([\w.]+)",),
    "Fortran": (r"^[ \t]*(?i:use)[ \t]*(?:,[^:\n]{0,60}::)?[ \t]+(\w+)",),
    "Go": (
        r'^[ \t]*import[ \t]+(?:[\w.]+[ \t]+)?"([^"\n]{1,200})"',
        r'^[ \t]+(?:[\w.]+[ \t]+)?"([^"\n]{1,200})"[ \t]*(?:$|//)',
    ),
    "Groovy": _JAVA,
    "Haskell": (r"^import[ \t]+(?:safe[ \t]+)?(?:qualified[ \t]+)?([\w.]+)",),
    "Java": _JAVA,
    "JavaScript": _JS,
    "Julia": (r"^[ \t]*(?:using|import)[ \t]+([\w.]+)",),
    "Kotlin": _JAVA,
    "LaTeX": (r"\\(?:usepackage|RequirePackage|input|include)(?:\[[^\]\n]{0,200}\])?\{([^}\n]{1,200})\}",),
    "Less": _STYLE,
    "Lua": _LUA,
    "Nim": (r"^[ \t]*(?:import|from|include)[ \t]+([\w/.]+)",),
    "OCaml": (r"^[ \t]*open!?[ \t]+([A-Z][\w.]*)",),
    "Objective-C": (*_C, r"^[ \t]*@import[ \t]+([\w.]+)"),
    "PHP": (
        r"^[ \t]*use[ \t]+(?:function[ \t]+|const[ \t]+)?\\?([A-Za-z_][\w\\]*)",
        rf"^[ \t]*(?:require|include)(?:_once)?[ \t(]+{_QUOTED}",
    ),
    "Perl": (r"^[ \t]*(?:use|require)[ \t]+([A-Z][\w:]*)",),
    "PowerShell": (r"^[ \t]*(?i:import-module|using[ \t]+module)[ \t]+([\w.\\/-]+)",),
    "Protocol Buffers": (rf"^[ \t]*import[ \t]+(?:public[ \t]+|weak[ \t]+)?{_QUOTED}",),
    "Python": (r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w.]+))",),
    "R": (r"\b(?:library|require|requireNamespace)\([ \t]*['\"]?([\w.]+)",),
    "Ruby": _RUBY,
    "Rust": (
        r"^[ \t]*(?:pub(?:\([^)\n]{0,60}\))?[ \t]+)?use[ \t]+(?:::)?([\w:]+)",
        r"^[ \t]*(?:pub[ \t]+)?extern[ \t]+crate[ \t]+(\w+)",
    ),
    "SCSS": _STYLE,
    "Scala": _JAVA,
    "Shell": (r"^[ \t]*(?:source|\.)[ \t]+([^\s;&|]{1,200})",),
    "Solidity": (rf"^[ \t]*import[ \t]+(?:[^'\"\n]{{0,200}}\bfrom[ \t]+)?{_QUOTED}",),
    "Starlark": (rf"^[ \t]*load\([ \t]*{_QUOTED}",),
    "Swift": (r"^[ \t]*(?:@\w+[ \t]+)?import[ \t]+(?:(?:class|struct|func|enum|protocol)[ \t]+)?([\w.]+)",),
    "Tcl": (r"^[ \t]*package[ \t]+require[ \t]+([\w:]+)",),
    "TypeScript": _JS,
    "Zig": (r'@import\("([^"\n]{1,200})"\)',),
}
_PATTERNS["Cython"] = (
    *_PATTERNS["Python"],
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+cimport\b|cimport[ \t]+([\w.]+))",
)
_PATTERNS["Svelte"] = _PATTERNS["Vue"] = _JS


@cache
def _pattern_of(language: str) -> re.Pattern[str] | None:
    patterns = _PATTERNS.get(language)
    return None if patterns is None else re.compile("|".join(patterns), re.MULTILINE)


def find_imports(text: str, lines: list[str], masked_lines: list[str], language: str) -> tuple[str, ...]:
    """Return the modules a file names, each once, in order, at most :data:`MAX_IMPORTS`.

    Args:
        text: The whole text.
        lines: Its lines.
        masked_lines: The same without comments; a line that is blank or inside a string there names nothing.
        language: The language's name.
    """
    pattern = _pattern_of(language)
    return () if pattern is None else _named(pattern, text, lines, masked_lines)


def find_quoted_includes(text: str, lines: list[str], masked_lines: list[str]) -> tuple[str, ...]:
    """Return the files a C file includes in quotes; as :func:`find_imports`."""
    return _named(_QUOTED_INCLUDE, text, lines, masked_lines)


def _named(pattern: re.Pattern[str], text: str, lines: list[str], masked_lines: list[str]) -> tuple[str, ...]:
    index: LineIndex | None = None
    modules: dict[str, None] = {}
    for count, match in enumerate(pattern.finditer(text)):
        if count >= _MAX_MATCHES or len(modules) >= MAX_IMPORTS:
            break
        module = match[match.lastindex or 0]
        if module in modules:
            continue
        index = index or LineIndex(lines)
        number = index.line_of(match.start(match.lastindex or 0))
        program = masked_lines[number - 1].strip()
        if program and not program.startswith(STRING_LINE):
            modules[module] = None
    return tuple(modules)


def package_of(language: str, module: str) -> str | None:
    """Return the package a module belongs to, None where it is the file's own or a neighbour.

    Python ``a.b`` gives ``a``; Java ``a.b.c.D`` gives ``a.b``; JavaScript ``@a/b/c`` gives ``@a/b``; Rust
    ``a::b`` gives ``a``; elsewhere the name itself. Relative names give None.
    """
    if module.startswith(".") or not module:
        return None
    if language in {"Python", "Cython"}:
        return module.partition(".")[0]
    if language in {"JavaScript", "TypeScript", "Vue", "Svelte"}:
        parts = module.split("/")
        return "/".join(parts[: 2 if module.startswith("@") else 1]) or None
    if language in {"Java", "Kotlin", "Scala", "Groovy"}:
        return ".".join(module.split(".")[:2])
    if language == "Rust":
        crate = module.partition("::")[0]
        return None if crate in {"crate", "self", "super"} else crate
    return module
