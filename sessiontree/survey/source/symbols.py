"""Symbols: what a text of code defines, calls and imports, read from its syntax tree."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, TypeAlias

from tree_sitter import Node, Parser, QueryCursor, Tree

from sessiontree.survey.source.languages import LanguageGrammar, find_grammar

SymbolKind: TypeAlias = Literal["function", "class", "constant"]

MAX_PARSE_S = 3.0
"""Longest time for one file; what is not parsed by then counts as lines alone."""
MAX_CALLS = 40
"""Most different names that one definition is said to call."""
_MAX_MATCHES = 65_536
"""Most matches that a search of a tree keeps unfinished at a time: bounds its time on hostile texts."""
_MAX_BROKEN = 3_000
"""Most pieces of a stretch of text that the grammar can't read."""
_CHUNK_BYTES = 64 * 1024
_MAX_SIGNATURE_CHARS = 240
_MAX_DOC_CHARS = 1_500
_MAX_WORDS_CHARS = 600

_CAPTURES: dict[SymbolKind, str] = {
    "function": "function method macro",
    "class": "class interface type enum object module",
    "constant": "constant",
}
"""Kinds of definitions, the better ones first, to what grammars call them."""
_KINDS = {capture: kind for kind, captures in _CAPTURES.items() for capture in captures.split()}
_RANK = {kind: rank for rank, kind in enumerate(_CAPTURES)}
_CALLS = frozenset(("reference.call", "reference.class"))
_WRAPPER_TYPES = """
    decorated_definition export_statement expression_statement function_definition init_declarator
    lexical_declaration pointer_declarator reference_declarator template_declaration type_declaration
    type_definition variable_declaration
"""
_WRAPPERS = frozenset(_WRAPPER_TYPES.split())
"""A definition that is all of one of these is shown with it."""
_WITH_MORE = frozenset(("decorated_definition", "template_declaration"))
"""Wrappers that hold more than the definition, and still belong to it."""
_SKIPPED = frozenset(("attribute_item", "decorator", "annotation", "modifiers", "attribute_list"))
"""Stand between a comment and the definition that it documents."""
_COMMENT_EDGE = re.compile(r"^\s*(?:/\*+!?|\*+/|\*(?!/)|//[/!]?|#+!?|--)[ \t]?|\*+/\s*$", re.MULTILINE)
_STRING_EDGE = re.compile(r"^[A-Za-z]*(\"\"\"|'''|\"|'|`)|(\"\"\"|'''|\"|'|`)$")
_BEFORE_BODY = re.compile(r"\s*(?:\{|=>|:|=)\s*$")


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition."""

    kind: SymbolKind
    name: str
    """Qualified, such as ``Cache.get``."""
    first: int
    """First line, from 1; decorators count, comments before it do not."""
    last: int
    """Last line, inclusive."""
    signature: str
    """The text before its body, on one line."""
    doc: str
    """What its file says about it, without the marks of comments and strings; lines as they are."""
    body: int
    """The line at which the body begins, after a docstring in it."""
    calls: tuple[str, ...] = ()
    """Names that it calls, each once, in order, without those of definitions inside it."""
    words: str = ""
    """Comments and texts inside it, cut."""
    complexity: int = 1
    """One more than the places at which it takes one of several ways; of functions alone."""

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Symbols:
    """What one text of code holds."""

    symbols: tuple[Symbol, ...] = ()
    """By line."""
    imports: tuple[str, ...] = ()
    """As written, without quotes, each once, in order."""
    public: tuple[str, ...] = ()
    """Names that others can use, each once, in order; of modules that gather names also what they gather."""
    comments: tuple[tuple[int, str], ...] = ()
    """Line and text of each comment."""
    comment_lines: frozenset[int] = frozenset()
    """Lines that hold nothing but a comment or documentation."""
    doc: str = ""
    """What the file says about itself."""
    problem: str = ""
    """Why it could not be parsed to its end; empty when it could."""


@dataclass(slots=True)
class _Found:
    """A definition while its file is being read."""

    node: Node
    """All of it, wrappers included."""
    inner: Node
    kind: SymbolKind
    name: str
    is_scope_only: bool = False
    qualified: str = ""
    calls: dict[str, None] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    branches: int = 0


def read_symbols(data: bytes, grammar_name: str, *, seconds: float = MAX_PARSE_S) -> Symbols:
    """Return what a text of code holds.

    Args:
        data: The text in UTF-8; bytes that are not UTF-8 are taken for replacement characters.
        grammar_name: Key of its grammar.
        seconds: Longest time to parse it.

    Contract: blocks; memory is linear in ``len(data)``. Never raises for what the text holds.
    """
    # a query that compares texts ends the whole process at bytes that are not UTF-8
    data = data.decode("utf-8", "replace").encode("utf-8")
    grammar = find_grammar(grammar_name)
    tree = _parse(grammar, data, seconds)
    if tree is None:
        return Symbols(problem=f"it was not parsed within {seconds:g} s; its lines are counted alone")
    root = tree.root_node
    if _is_wreck(root):
        return Symbols(problem="most of it is not what its language allows; its lines are counted alone")
    matches = QueryCursor(grammar.tags, match_limit=_MAX_MATCHES).matches(root)
    marks = QueryCursor(grammar.marks, match_limit=_MAX_MATCHES).captures(root)
    found = _collect_definitions(matches, data)
    _qualify(found)
    comments = marks.get("comment", [])
    calls = [found["name"][0] for _, found in matches if "name" in found and not _CALLS.isdisjoint(found)]
    _fill(found, data, calls, marks.get("branch", []), [*comments, *marks.get("string", [])])
    is_python = grammar_name == "python"
    documented = (
        [_find_docstring(node) for node in (root, *(one.inner for one in found))] if is_python else []
    )
    place = attrgetter("start_byte")
    imports = (_read_import(node, data) for node in sorted(marks.get("import", []), key=place))
    # where a file lists its public names, no others count
    public = sorted(marks.get("listed") or marks.get("public", []), key=place)
    return Symbols(
        tuple(_make_symbol(one, data, is_python=is_python) for one in found if not one.is_scope_only),
        tuple(dict.fromkeys(filter(None, imports))),
        tuple(dict.fromkeys(" ".join(_get_text(node, data).split()) for node in public)),
        tuple((node.start_point.row + 1, _get_text(node, data)) for node in comments),
        _find_whole_lines(data, [*comments, *(node for node in documented if node is not None)]),
        _extract_file_doc(root, data, is_python=is_python),
    )


def _parse(grammar: LanguageGrammar, data: bytes, seconds: float) -> Tree | None:
    """Return a text's tree; None when that takes too long."""
    deadline = time.monotonic() + seconds

    def read(offset: int, _: object) -> bytes:
        return data[offset : offset + _CHUNK_BYTES]

    def is_late(_: int, __: bool) -> bool:
        return time.monotonic() > deadline

    try:
        # a parser that was interrupted can't be used for another text
        return Parser(grammar.language).parse(read, progress_callback=is_late)
    except ValueError:  # the library's word for an interrupted parse
        return None


def _is_wreck(root: Node) -> bool:
    """Return whether a part of a tree is one long row of broken pieces, which is slow to search."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error and node.child_count > _MAX_BROKEN:
            return True
        waiting += [child for child in node.children if child.has_error]
    return False


def _collect_definitions(matches: list[tuple[int, dict[str, list[Node]]]], data: bytes) -> list[_Found]:
    """Return the definitions, outer ones before those inside them, each once."""
    best: dict[tuple[int, int, str], list[_Found]] = {}
    for _, captures in matches:
        names = captures.get("name")
        if not names:
            continue
        for capture, nodes in captures.items():
            kind = _KINDS.get(capture.removeprefix("definition.")) if "definition." in capture else None
            if kind is None and capture != "scope.impl":
                continue
            inner = nodes[0]
            own = inner.child_by_field_name("name")
            if capture == "definition.method" and own is not None and own != names[0] and names[0].parent:
                inner = names[0].parent  # some wheels capture the class around a method
            if (node := _find_definition(inner)) is None:
                continue
            scope = captures.get("scope") or captures.get("local.scope") or []
            name = ".".join(_get_text(one, data) for one in (*scope[:1], names[0]))
            one = _Found(node, inner, kind or "class", name, capture == "scope.impl")
            # of two readings of one name the better kind counts, then the longer name
            best.setdefault((names[0].start_byte, names[0].end_byte, name.rpartition(".")[2]), []).append(one)
    found = [min(same, key=lambda one: (_RANK[one.kind], -len(one.name))) for same in best.values()]
    return sorted(found, key=lambda one: (one.node.start_byte, -one.node.end_byte))


def _find_definition(node: Node) -> Node | None:
    """Return a definition with what belongs to it; None for a declaration without a body in C and C++."""
    if node.type == "function_declarator":
        outer = node.parent
        while outer is not None and outer.type in ("pointer_declarator", "reference_declarator"):
            outer = outer.parent
        if outer is None or outer.type != "function_definition":
            return None
        node = outer
    while (outer := node.parent) is not None and outer.type in _WRAPPERS and outer.parent is not None:
        if outer.named_child_count != 1 and outer.type not in _WITH_MORE:
            break
        node = outer
    return node


def _qualify(found: list[_Found]) -> None:
    """Give each definition its qualified name: those of the definitions around it, then its own."""
    around: list[_Found] = []
    for one in found:
        while around and around[-1].node.end_byte < one.node.end_byte:
            around.pop()
        one.qualified = f"{around[-1].qualified}.{one.name}" if around else one.name
        if one.kind != "constant":
            around.append(one)


def _fill(found: list[_Found], data: bytes, *kinds: list[Node]) -> None:
    """Tell each definition what it calls, branches and says, in this order: the innermost that holds it."""
    events = [(node.start_byte, what, node) for what, nodes in enumerate(kinds) for node in nodes]
    events.sort(key=lambda event: event[:2])
    ahead = iter([*found, None])
    coming = next(ahead)
    around: list[_Found] = []
    for start, what, node in events:
        while coming is not None and coming.node.start_byte <= start:
            if coming.kind != "constant":
                around.append(coming)
            coming = next(ahead)
        while around and around[-1].node.end_byte <= start:
            around.pop()
        # an inner definition may have ended before an outer one that began earlier
        holder = next((one for one in reversed(around) if one.node.end_byte > start), None)
        if holder is None:
            continue
        if what == 0 and len(holder.calls) < MAX_CALLS:
            holder.calls[_get_text(node, data)] = None
        elif what == 1:
            holder.branches += 1
        elif what == 2 and len(holder.words) < MAX_CALLS:
            holder.words.append(_get_text(node, data)[:_MAX_WORDS_CHARS])


def _make_symbol(one: _Found, data: bytes, *, is_python: bool) -> Symbol:
    body = _find_body(one)
    docstring = _find_docstring(one.inner) if is_python else None
    first_of_body = (body or one.node).start_point.row + 1
    if docstring is not None:
        doc, first_of_body = _strip_marks(_get_text(docstring, data)), docstring.end_point.row + 2
    else:
        doc = _find_comment_before(one.node, data)
    has_own_body = body is not None and body.start_byte > one.inner.start_byte
    end = body.start_byte if body is not None and has_own_body else one.node.end_byte
    is_declarator = one.inner.type in ("variable_declarator", "function_declarator")
    begin = one.node.start_byte if is_declarator or one.inner.start_byte >= end else one.inner.start_byte
    text = data[begin : min(end, begin + 4 * _MAX_SIGNATURE_CHARS)].decode("utf-8", "replace")
    signature = _BEFORE_BODY.sub("", " ".join(text.split()))[:_MAX_SIGNATURE_CHARS]
    said = " ".join(" ".join(map(_strip_marks, one.words)).split())[:_MAX_WORDS_CHARS]
    place = (one.kind, one.qualified, one.node.start_point.row + 1, _find_last_row(one.node) + 1)
    complexity = 1 + one.branches if one.kind == "function" else 1
    return Symbol(*place, signature, doc[:_MAX_DOC_CHARS], first_of_body, tuple(one.calls), said, complexity)


def _find_body(one: _Found) -> Node | None:
    """Return what comes after the signature; None for a definition without a body."""
    for node in (one.inner, one.inner.child_by_field_name("value"), one.node):
        if node is not None:
            body = node.child_by_field_name("body")
            body = body or next((child for child in node.children if child.type.endswith("_body")), None)
            if body is not None:
                return body
    return None


def _find_last_row(node: Node) -> int:
    """Return the last row of a node that has a letter of it."""
    end = node.end_point
    return end.row - 1 if end.column == 0 and end.row > node.start_point.row else end.row


def _find_docstring(node: Node) -> Node | None:
    """Return the string that documents a Python module, class or function."""
    body = node if node.type == "module" else node.child_by_field_name("body")
    children = body.named_children if body is not None else []
    first = next((child for child in children if child.type != "comment"), None)
    if first is None or first.type != "expression_statement" or first.named_child_count != 1:
        return None
    return first.named_children[0] if first.named_children[0].type == "string" else None


def _find_comment_before(node: Node, data: bytes) -> str:
    """Return the comments that end on the line before a node, or on that of another such comment."""
    said: list[str] = []
    row, before = node.start_point.row, node.prev_sibling
    while before is not None and _find_last_row(before) >= row - 1:
        if "comment" in before.type:
            said.append(_strip_marks(_get_text(before, data)))
        elif before.type not in _SKIPPED:
            break
        row, before = before.start_point.row, before.prev_sibling
    return "\n".join(reversed(said)).strip()


def _extract_file_doc(root: Node, data: bytes, *, is_python: bool) -> str:
    """Return what a file says about itself: its docstring, or the comment at its head."""
    if is_python:
        docstring = _find_docstring(root)
        return _strip_marks(_get_text(docstring, data))[:_MAX_DOC_CHARS] if docstring is not None else ""
    said: list[str] = []
    last = -1
    for child in root.children:
        row = child.start_point.row
        if "comment" not in child.type or (said and row > last + 1):
            if row <= last + 1 and "import" not in child.type:
                said.clear()  # a comment right above a definition documents that one
            break
        if not _get_text(child, data).startswith("#!/"):
            said.append(_strip_marks(_get_text(child, data)))
        last = _find_last_row(child)
    return "\n".join(said)[:_MAX_DOC_CHARS]


def _find_whole_lines(data: bytes, nodes: Iterable[Node]) -> frozenset[int]:
    """Return the lines that hold nothing but comments, numbered from 1."""
    lines: set[int] = set()
    for node in nodes:
        start = node.start_byte
        before = data[data.rfind(b"\n", 0, start) + 1 : start]
        if not before.strip():
            lines.update(range(node.start_point.row + 1, _find_last_row(node) + 2))
    return frozenset(lines)


def _read_import(node: Node, data: bytes) -> str:
    """Return what an import names, without quotes, and without what is picked from it in braces."""
    text = _get_text(node, data).removeprefix("import ").partition("{")[0].strip().strip("\"'`<>")
    return text.removesuffix("::").strip()[:200]


def _strip_marks(text: str) -> str:
    """Return a comment's or a string's text without its marks."""
    if text.startswith(("/", "#", "--", "*")):
        return _COMMENT_EDGE.sub("", text).strip()
    return _STRING_EDGE.sub("", text).strip()


def _get_text(node: Node, data: bytes) -> str:
    """Return a node's text; the tree's own copy of it would be copied for every node."""
    return data[node.start_byte : node.end_byte].decode("utf-8", "replace")
