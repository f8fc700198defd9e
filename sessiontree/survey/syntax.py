"""Syntax: what comments and strings look like, and the text of a file with both taken out.

Room: one compiled pattern per family of languages. Every alternative, once begun, runs to its end or to the
end of the text and never gives anything back, so masking is linear in the text's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

STRING_LINE = "\x00"
"""Stands in masked text for each further line of a string that spans lines."""


def _until(close: str) -> str:
    """Return a pattern for everything up to and including ``close``, or to the end of the text."""
    first, rest = re.escape(close[0]), re.escape(close[1:])
    inner = rf"(?:[^{first}]++|{first}(?!{rest}))*+" if rest else rf"[^{first}]*+"
    return rf"{inner}(?:{re.escape(close)}|\Z)"


def _quoted(quote: str, *, lines: bool = False) -> str:
    """Return a pattern for a string with backslash escapes; one that spans no lines ends with its line."""
    stop = "" if lines else r"\n"
    return rf"{quote}(?:[^{quote}\\{stop}]++|\\[\s\S])*+{quote}?"


def _triple(quote: str) -> str:
    return rf"{quote * 3}(?:[^{quote}\\]++|\\[\s\S]|{quote}(?!{quote * 2}))*+(?:{quote * 3}|\Z)"


_COMMENTS = {
    "//": r"//[^\n]*",
    "#": r"#[^\n]*",
    # `$#`, `${#list}` and `a#b` are no comments
    " #": r"(?<![^\s;&|()])#[^\n]*",
    "--": r"--[^\n]*",
    ";": r";[^\n]*",
    ";;": r";;[^\n]*",
    # `#[` opens an attribute
    "#php": r"#(?!\[)[^\n]*",
    "%": r"%[^\n]*",
    "!": r"![^\n]*",
    "'": r"'[^\n]*",
    "*>": r"\*>[^\n]*",
    "rem": r"^[ \t]*(?:(?i:@?rem\b)|::)[^\n]*",
    "vim": r'^[ \t]*"[^\n]*',
    "ini": r"^[ \t]*[#;!][^\n]*",
    "f77": r"^[cC*](?![ \t]*=)[ \t!*\-][^\n]*",
    "/*": r"/\*" + _until("*/"),
    "<!--": "<!--" + _until("-->"),
    "{-": r"\{-" + _until("-}"),
    "{": r"\{" + _until("}"),
    "(*": r"\(\*(?!\))" + _until("*)"),
    "(;": r"\(;" + _until(";)"),
    "#|": r"#\|" + _until("|#"),
    "#=": "#=" + _until("=#"),
    "#[": r"#\[" + _until("]#"),
    "<#": "<#" + _until("#>"),
    "{#": r"\{#" + _until("#}"),
    "###": "###" + _until("###"),
    "#[[": r"#\[\[" + _until("]]"),
    "=begin": r"^=begin\b" + _until("\n=end"),
    "=pod": r"^=[a-zA-Z]\w*" + _until("\n=cut"),
    "%{": r"^[ \t]*%\{[ \t]*$" + _until("%}"),
    "--[[": r"--\[(?P<depth>=*)\[(?:[^\]]++|\](?!(?P=depth)\]))*+(?:\](?P=depth)\]|\Z)",
}

_STRINGS = {
    '"': _quoted('"'),
    "'": _quoted("'"),
    '"lines': _quoted('"', lines=True),
    "`lines": _quoted("`", lines=True),
    "`raw": "`" + _until("`"),
    '"""': _triple('"'),
    "'''": _triple("'"),
    # one character, so that a lifetime or a digit separator opens nothing
    "char": r"'(?:\\[^\n][^'\n]{0,10}|[^'\\\n])'",
    "doubled": r"'[^'\n]*+'?",
    "doubled_double": r'"[^"\n]*+"?',
    "escaped": r"\\[^\n]",
    '@"': r'@"(?:[^"]++|"")*+(?:"|\Z)',
    "r#": r'\br(?P<hashes>#+)"(?:[^"]++|"(?!(?P=hashes)))*+(?:"(?P=hashes)|\Z)',
    'R"(': r'R"(?P<tag>[^()\\\s"]{0,16})\((?:[^)]++|\)(?!(?P=tag)"))*+(?:\)(?P=tag)"|\Z)',
    "[[": r"\[(?P<level>=*)\[(?:[^\]]++|\](?!(?P=level)\]))*+(?:\](?P=level)\]|\Z)",
    "''lines": r"''(?:[^']++|'(?!'))*+(?:''|\Z)",
    # a slash where no division can stand opens a regular expression
    "/regex/": (
        r"(?:(?<=[=(,:\[!&|?{};])|(?<=[=(,:\[!&|?{};][ ])|(?<=return[ ]))/(?![*/\s])"
        r"(?:[^/\\\n\[]++|\\[^\n]|\[(?:[^\]\\\n]++|\\[^\n])*+\]?)*+/?"
    ),
}


@dataclass(frozen=True, slots=True)
class Syntax:
    """Which comments and strings a family of languages has, by key, the longer opening first."""

    comments: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()


SYNTAXES: dict[str, Syntax] = {
    "none": Syntax(),
    "ada": Syntax(("--",), ("doubled_double", "char")),
    "assembly": Syntax(("/*", "//", ";", " #"), ('"',)),
    "basic": Syntax(("'",), ("doubled_double",)),
    "batch": Syntax(("rem",), ()),
    "c": Syntax(("/*", "//"), ('"', "char")),
    "cmake": Syntax(("#[[", "#"), ('"lines',)),
    "cobol": Syntax(("*>",), ("doubled", "doubled_double")),
    "coffee": Syntax(("###", "#"), ('"""', "'''", '"', "'")),
    "cpp": Syntax(("/*", "//"), ('R"(', '"', "char")),
    "csharp": Syntax(("/*", "//"), ('"""', '@"', '"', "char")),
    "css": Syntax(("/*",), ('"', "'")),
    "elixir": Syntax(("#",), ('"""', "'''", '"lines', "char")),
    "erlang": Syntax(("%",), ('"',)),
    "fortran": Syntax(("f77", "!"), ("doubled", "doubled_double")),
    "go": Syntax(("/*", "//"), ("`raw", '"', "char")),
    "groovy": Syntax(("/*", "//"), ('"""', "'''", '"', "'")),
    "hash": Syntax((" #",), ('"', "escaped")),
    "haskell": Syntax(("{-", "--"), ('"""', '"', "char")),
    "hcl": Syntax(("/*", "//", "#"), ('"',)),
    "ini": Syntax(("ini",), ()),
    "java": Syntax(("/*", "//"), ('"""', "'''", '"', "'")),
    "javascript": Syntax(("/*", "//"), ("`lines", '"', "'", "/regex/")),
    "jinja": Syntax(("{#", "<!--"), ()),
    "jsonc": Syntax(("/*", "//"), ('"', "'")),
    "julia": Syntax(("#=", "#"), ('"""', '"lines', "char")),
    "kotlin": Syntax(("/*", "//"), ('"""', '"', "char")),
    "lisp": Syntax(("#|", ";"), ("escaped", '"lines')),
    "lua": Syntax(("--[[", "--"), ("[[", '"', "'")),
    "make": Syntax((" #",), ()),
    "markup": Syntax(("<!--",), ()),
    "matlab": Syntax(("%{", "%"), ("doubled_double",)),
    "nim": Syntax(("#[", "#"), ('"""', '"', "char")),
    "nix": Syntax(("/*", "#"), ("''lines", '"lines')),
    "ocaml": Syntax(("(*",), ('"lines', "char")),
    "ocaml_lines": Syntax(("(*", "//"), ('"""', '@"', '"lines', "char")),
    "pascal": Syntax(("{", "(*", "//"), ("doubled",)),
    "percent": Syntax(("%",), ("escaped",)),
    "perl": Syntax(("=pod", " #"), ("escaped", '"', "'")),
    "php": Syntax(("/*", "//", "#php"), ('"', "'")),
    "powershell": Syntax(("<#", "#"), ("doubled_double", "doubled")),
    "prolog": Syntax(("/*", "%"), ('"', "'")),
    "python": Syntax(("#",), ('"""', "'''", '"', "'")),
    "r": Syntax(("#",), ('"lines', "'", "`raw")),
    "ruby": Syntax(("=begin", " #"), ('"', "'", "/regex/")),
    "rust": Syntax(("/*", "//"), ("r#", '"lines', "char")),
    "scss": Syntax(("/*", "//"), ('"', "'")),
    "shell": Syntax((" #",), ("escaped", '"', "doubled")),
    "sql": Syntax(("/*", "--"), ("doubled", "doubled_double")),
    "swift": Syntax(("/*", "//"), ('"""', '"')),
    "toml": Syntax(("#",), ('"""', "'''", '"', "doubled")),
    "vim": Syntax(("vim",), ("doubled",)),
    "wat": Syntax(("(;", ";;"), ('"',)),
    "web": Syntax(("<!--", "/*", "//"), ("`lines", '"', "'")),
    "yaml": Syntax((" #",), ('"', "doubled")),
    "zig": Syntax(("//",), ('"', "char")),
}


@cache
def scanner(syntax: str) -> re.Pattern[str] | None:
    """Return the pattern of a family's comments (group ``comment``) and strings, None if it has neither."""
    family = SYNTAXES[syntax]
    parts = []
    if family.comments:
        parts.append("(?P<comment>" + "|".join(_COMMENTS[key] for key in family.comments) + ")")
    strings = "|".join(_STRINGS[key] for key in family.strings)
    if strings:
        parts.append(f"(?P<string>{strings})")
    return re.compile("|".join(parts), re.MULTILINE) if parts else None


def masked(text: str, syntax: str) -> str:
    """Return the text without comments and with every string emptied, line for line.

    A comment leaves only its line ends, a string its quotes and, per further line that is not blank, one
    :data:`STRING_LINE`. So braces and words that remain are program text.
    """
    pattern = scanner(syntax)
    return text if pattern is None else pattern.sub(_mask, text)


def _mask(found: re.Match[str]) -> str:
    token = found[0]
    breaks = token.count("\n")
    if found.lastgroup == "comment":
        return "\n" * breaks if breaks else " "
    if not breaks:
        return '""'
    lines = token.split("\n")
    return '""' + "".join("\n" + STRING_LINE if line.strip() else "\n" for line in lines[1:])
