"""Definition patterns: per language, what the first line of a function or a class looks like.

Room: a table of line patterns with a group around the name; every group but ``class`` and ``owner`` names a
function. All are anchored at a line's start, look at masked text, and repeat only what cannot be matched in
two ways, so each is linear in the length of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

BodyForm: TypeAlias = Literal["braces", "indent"]


def _words(words: str) -> str:
    """Return a pattern for any number of modifiers, each followed by blanks."""
    return rf"(?:(?:{words.replace(' ', '|')})\b[ \t]*+)*"


_ANNOTATION = r"(?:@[\w.]++(?:\([^()\n]{0,200}\))?[ \t]*+)*"
_JS_MODIFIERS = _words("export default declare abstract async")
_KOTLIN = _ANNOTATION + _words(
    "public private protected internal override open abstract sealed data enum annotation inner value final "
    "suspend inline noinline infix operator tailrec external actual expect companion implicit lazy case"
)
_SWIFT = _ANNOTATION + _words(
    "public private fileprivate internal open static final override mutating nonmutating required "
    "convenience indirect prefix postfix async"
)
_RUST = r"(?:pub\b(?:[ \t]*\([^()\n]{0,60}\))?[ \t]*+)?" + _words("default const async unsafe extern")
_PHP = _words("public private protected static abstract final readonly")
_FORTRAN = _words("recursive pure elemental integer real logical character complex")
_SQL = _words("or replace temp temporary unlogged materialized")
_BASIC = _words("public private friend shared overrides partial")

_BRACES: dict[str, tuple[str, ...]] = {
    "Go": (
        r"^func[ \t]+(?P<function>[^\W\d]\w*)",
        r"^func[ \t]*\((?:\w+[ \t]+)?\*?(?P<owner>\w+)[^()\n]{0,200}\)[ \t]*(?P<method>\w+)",
        r"^[ \t]*type[ \t]+(?P<class>\w+)(?:\[[^\]\n]{1,200}\])?[ \t]+(?:struct|interface)\b",
    ),
    "Rust": (
        rf"^[ \t]*{_RUST}fn[ \t]+(?P<function>(?:r#)?\w+)",
        rf"^[ \t]*{_RUST}(?:struct|enum|trait|union|mod(?=[ \t]+\w+[ \t]*\{{))[ \t]+(?P<class>\w+)",
    ),
    "JavaScript": (
        rf"^[ \t]*{_JS_MODIFIERS}function\b[ \t]*\*?[ \t]*(?P<function>[\w$]+)",
        (
            r"^[ \t]*(?:export[ \t]+)?(?:const|let|var)[ \t]+(?P<arrow>[\w$]+)[ \t]*(?::[^=\n]{0,200})?="
            r"[ \t]*(?:async\b[ \t]*)?(?:function\b|[\w$]+[ \t]*=>|\([^()]{0,500}\)[^=\n{;]{0,200}=>)"
        ),
        r"^[ \t]*(?:[\w$]++\.)*(?P<property>[\w$]++)[ \t]*[:=][ \t]*(?:async[ \t]+)?function\b",
        rf"^[ \t]*{_JS_MODIFIERS}(?:class|interface|enum|namespace)[ \t]+(?P<class>[\w$]+)",
    ),
    "Kotlin": (
        (
            rf"^[ \t]*{_KOTLIN}fun[ \t]+(?:<[^<>\n]{{1,200}}>[ \t]*)?(?:[\w<>?, ]{{1,100}}\.)?"
            r"(?P<function>\w+|`[^`\n]{1,100}`)"
        ),
        rf"^[ \t]*{_KOTLIN}(?:class|(?:fun[ \t]+)?interface|object)[ \t]+(?P<class>\w+|`[^`\n]{{1,100}}`)",
    ),
    "Scala": (
        rf"^[ \t]*{_KOTLIN}def[ \t]+(?P<function>[^\s(\[:={{]{{1,100}})",
        rf"^[ \t]*{_KOTLIN}(?:class|object|trait)[ \t]+(?P<class>\w+)",
    ),
    "Swift": (
        rf"^[ \t]*{_SWIFT}(?:class[ \t]+)?func[ \t]+(?P<function>[^\s(<]{{1,100}})",
        rf"^[ \t]*{_SWIFT}(?P<initialiser>init|deinit)\b[ \t]*[?!(<{{]",
        rf"^[ \t]*{_SWIFT}(?:class|struct|enum|protocol|extension|actor)[ \t]+(?P<class>[\w.]+)",
    ),
    "PHP": (
        rf"^[ \t]*{_PHP}function[ \t]+&?(?P<function>\w+)",
        rf"^[ \t]*{_PHP}(?:class|interface|trait|enum)[ \t]+(?P<class>\w+)",
    ),
    "Shell": (
        r"^[ \t]*function[ \t]+(?P<function>[\w:.-]+)",
        r"^[ \t]*(?P<bare>[\w:.-]++)[ \t]*\([ \t]*\)[ \t]*(?=[{(\n])",
    ),
    "Perl": (r"^[ \t]*sub[ \t]+(?P<function>[\w:']+)",),
    "PowerShell": (
        r"^[ \t]*(?i:function|filter)[ \t]+(?P<function>[\w:-]+)",
        r"^[ \t]*(?i:class)[ \t]+(?P<class>\w+)",
    ),
    "R": (r"^[ \t]*(?P<function>[\w.]++)[ \t]*(?:<<?-|=)[ \t]*function\b",),
    "Tcl": (r"^[ \t]*proc[ \t]+(?P<function>[\w:]+)",),
    "Zig": (
        rf"^[ \t]*{_words('pub export extern inline noinline')}fn[ \t]+(?P<function>\w+)",
        r"^[ \t]*(?:pub[ \t]+)?const[ \t]+(?P<class>\w+)[ \t]*=[ \t]*(?:packed |extern )?(?:struct|enum)\b",
    ),
    "Solidity": (
        r"^[ \t]*(?:function|modifier)[ \t]+(?P<function>\w+)",
        r"^[ \t]*(?:abstract[ \t]+)?(?:contract|interface|library|struct|enum)[ \t]+(?P<class>\w+)",
    ),
    "Objective-C": (
        r"^[-+][ \t]*\([^()\n]{1,200}\)[ \t]*(?P<function>\w+)",
        r"^@(?:interface|implementation|protocol)[ \t]+(?P<class>\w+)",
    ),
    "Protocol Buffers": (r"^[ \t]*(?:message|enum|service)[ \t]+(?P<class>\w+)",),
    "GraphQL": (r"^[ \t]*(?:extend[ \t]+)?(?:type|interface|enum|input)[ \t]+(?P<class>\w+)",),
    "Thrift": (r"^[ \t]*(?:struct|enum|service|exception|union)[ \t]+(?P<class>\w+)",),
    "Awk": (r"^[ \t]*function[ \t]+(?P<function>\w+)",),
}
_BRACES["TypeScript"] = _BRACES["JavaScript"]
_BRACES["Vue"] = _BRACES["Svelte"] = _BRACES["JavaScript"][:2]

_INDENT: dict[str, tuple[str, ...]] = {
    "Python": (r"^[ \t]*(?:async[ \t]+)?def[ \t]+(?P<function>\w+)", r"^[ \t]*class[ \t]+(?P<class>\w+)"),
    "Cython": (
        r"^[ \t]*(?:async[ \t]+)?def[ \t]+(?P<function>\w+)",
        r"^[ \t]*(?:cdef|cpdef)[ \t]+(?!class\b)[\w \t*\[\],.]{0,100}?(?P<typed>\w+)[ \t]*\(",
        r"^[ \t]*(?:cdef[ \t]+)?class[ \t]+(?P<class>\w+)",
    ),
    "Ruby": (
        r"^[ \t]*(?:private[ \t]+|public[ \t]+|protected[ \t]+)?def[ \t]+(?P<function>[\w.?!=<>+\-*/%\[\]]+)",
        r"^[ \t]*(?:class|module)[ \t]+(?P<class>[A-Z][\w:]*)",
    ),
    "Elixir": (
        r"^[ \t]*(?:def|defp|defmacro|defmacrop)[ \t]+(?P<function>[\w?!]+)",
        r"^[ \t]*(?:defmodule|defprotocol)[ \t]+(?P<class>[\w.]+)",
    ),
    "Lua": (
        r"^[ \t]*(?:local[ \t]+)?function[ \t]+(?P<function>[\w.:]+)",
        r"^[ \t]*(?:local[ \t]+)?(?P<assigned>[\w.]++)[ \t]*=[ \t]*function\b",
    ),
    "Julia": (
        r"^[ \t]*(?:@\w+[ \t]+)?(?:function|macro)[ \t]+(?P<function>[\w.!]+)",
        r"^[ \t]*(?:mutable[ \t]+)?(?:struct|module|abstract type)[ \t]+(?P<class>\w+)",
    ),
    "Nim": (r"^[ \t]*(?:proc|func|method|template|macro|iterator|converter)[ \t]+`?(?P<function>\w+)",),
    "CoffeeScript": (
        r"^[ \t]*@?(?P<function>[\w.$]++)[ \t]*[:=][ \t]*(?:\([^()\n]{0,300}\)[ \t]*)?[-=]>",
        r"^[ \t]*class[ \t]+(?P<class>[\w.]+)",
    ),
    "GDScript": (r"^[ \t]*(?:static[ \t]+)?func[ \t]+(?P<function>\w+)", r"^[ \t]*class[ \t]+(?P<class>\w+)"),
    "Starlark": (r"^[ \t]*def[ \t]+(?P<function>\w+)",),
    "Haskell": (
        r"^(?P<function>[a-z_][\w']*+)[ \t]*::",
        r"^(?:data|newtype|class|instance)[ \t]+(?:[^=\n]{0,100}=>[ \t]*)?(?P<class>[A-Z][\w']*)",
    ),
    "Elm": (r"^(?P<function>[a-z]\w*+)[ \t]*:", r"^type[ \t]+(?:alias[ \t]+)?(?P<class>\w+)"),
    "OCaml": (
        r"^[ \t]*(?:let|and)[ \t]+(?:rec[ \t]+)?(?P<function>[a-z_][\w']*+)[ \t]+[^=\n \t:]",
        r"^[ \t]*(?:module|class)[ \t]+(?:type[ \t]+)?(?P<class>\w+)",
    ),
    "F#": (
        (
            r"^[ \t]*(?:let|member)[ \t]+(?:rec[ \t]+|inline[ \t]+)?(?:\w+\.)?"
            r"(?P<function>[A-Za-z_]\w*+)[ \t]*[ (][^=\n:]"
        ),
        r"^[ \t]*(?:type|module)[ \t]+(?P<class>[\w.]+)",
    ),
    "Clojure": (
        r"^[ \t]*\((?:defn-?|defmacro|defmulti)[ \t]+(?:\^\S+[ \t]+)?(?P<function>[^\s()\[\]]{1,100})",
    ),
    "Common Lisp": (r"^[ \t]*\((?i:defun|defmacro|defmethod)[ \t]+(?P<function>[^\s()]{1,100})",),
    "Scheme": (r"^[ \t]*\(define[ \t]+\((?P<function>[^\s()]{1,100})",),
    "Erlang": (r"^(?P<function>[a-z]\w*+)\([^\n]{0,300}?->",),
    "Fortran": (
        rf"^[ \t]*(?i:{_FORTRAN}(?:subroutine|function)[ \t]+(?P<function>\w+))",
        r"^[ \t]*(?i:module|program|type)[ \t]+(?!(?i:procedure)\b)(?P<class>\w+)[ \t]*$",
    ),
    "Ada": (
        r"^[ \t]*(?i:procedure|function)[ \t]+(?P<function>[\w.]+)",
        r"^[ \t]*(?i:package)[ \t]+(?:(?i:body)[ \t]+)?(?P<class>[\w.]+)",
    ),
    "VHDL": (
        r"^[ \t]*(?i:procedure|function)[ \t]+(?P<function>\w+)",
        r"^[ \t]*(?i:entity|architecture|package)[ \t]+(?P<class>\w+)",
    ),
    "Pascal": (r"^[ \t]*(?i:procedure|function|constructor|destructor)[ \t]+(?P<function>[\w.]+)",),
    "Verilog": (
        r"^[ \t]*(?:function|task)[ \t]+(?:[\w\[\]:]++[ \t]++){0,5}(?P<function>\w+)[ \t]*[(;]",
        r"^[ \t]*(?:module|interface|class|package)[ \t]+(?P<class>\w+)",
    ),
    "MATLAB": (
        r"^[ \t]*function[ \t]+(?:[^=\n]{1,200}=[ \t]*)?(?P<function>[\w.]+)",
        r"^[ \t]*classdef[ \t]+(?P<class>\w+)",
    ),
    "Visual Basic": (
        rf"^[ \t]*(?i:{_BASIC}(?:sub|function)[ \t]+(?P<function>\w+))",
        rf"^[ \t]*(?i:{_BASIC}(?:class|module|structure)[ \t]+(?P<class>\w+))",
    ),
    "Vim Script": (r"^[ \t]*fu(?:nction)?!?[ \t]+(?P<function>[\w:#.<>]+)",),
    "Fish": (r"^[ \t]*function[ \t]+(?P<function>[\w.-]+)",),
    "CMake": (r"^[ \t]*(?i:function|macro)[ \t]*\([ \t]*(?P<function>\w+)",),
    "SQL": (
        rf"^[ \t]*(?i:create[ \t]+{_SQL}(?:function|procedure|trigger)[ \t]+(?P<function>[\w.]+))",
        rf"^[ \t]*(?i:create[ \t]+{_SQL}(?:table|view)[ \t]+(?:if not exists[ \t]+)?(?P<class>[\w.]+))",
    ),
}
_INDENT["Crystal"] = _INDENT["Ruby"]
_INDENT["Racket"] = _INDENT["Scheme"]
_INDENT["Emacs Lisp"] = _INDENT["Common Lisp"]

HEADED = frozenset(
    (
        "C",
        "C++",
        "C#",
        "CUDA",
        "Java",
        "Dart",
        "D",
        "Groovy",
        "Objective-C",
        "GLSL",
        "HLSL",
        "Metal",
        "Arduino",
    )
)
"""Languages whose functions no keyword announces: the text before a brace tells."""
METHODS = frozenset(("JavaScript", "TypeScript", "Vue", "Svelte"))
"""Languages with keyword functions whose methods are announced by the text before a brace alone."""


@dataclass(frozen=True, slots=True)
class DefinitionPatterns:
    """How the definitions of one language are found."""

    body: BodyForm
    lines: re.Pattern[str] | None
    """Matches first lines; None where only braces tell."""


@cache
def patterns_of(language: str) -> DefinitionPatterns | None:
    """Return a language's patterns, None where the survey knows none."""
    if language in _BRACES:
        return DefinitionPatterns("braces", _joined(_BRACES[language]))
    if language in _INDENT:
        return DefinitionPatterns("indent", _joined(_INDENT[language]))
    return DefinitionPatterns("braces", None) if language in HEADED else None


def _joined(lines: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(lines), re.MULTILINE)
