#!/usr/bin/env python3
"""Write the classes of ``sessiontree.sync`` from the async classes that they are the twins of.

Signatures, overloads, properties and docstrings come from the async source. What differs is in the tables
here: how a call crosses to the loop, what wraps its result, and what a docstring adds. The bridge between
threads, the prompts, and the base classes in ``sync/bases.py`` are written by hand.

Usage: ``python .ci/generate_sync.py [--check]``; with ``--check`` nothing is written, and the exit code is 1
where a file differs from what would be written.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYNC = "sessiontree/sync"


@dataclass(frozen=True)
class Twin:
    """One generated class."""

    name: str
    module: str
    """Of the async class, beneath ``sessiontree``."""
    base: str
    inner: str = "self._inner"
    """The async object."""
    methods: tuple[str, ...] = ()
    """What is generated; the base has the rest."""
    fields: dict[str, str] = field(default_factory=dict)
    """Public fields of an async dataclass, and what they hold."""
    made_by_programs: bool = False
    """Whether programs call the class, so that its ``Args`` are theirs."""


@dataclass(frozen=True)
class Face:
    """One generated file."""

    path: str
    doc: str
    imports: str
    twins: tuple[Twin, ...]


WAITS = {"map", "run", "call", "run_program", "result"}
"""Calls that wait for sessions: meanwhile people are asked on the calling thread."""
DIRECT = {"call_id", "session_id", "tool", "arguments", "params", "params_of", "tree_id", "state_dir"}
"""What any thread may read."""
ON_OWN_LEASE = {"StoredTrees"}
"""Classes that need no open tree."""
ITERATIONS = {
    "transcript": ("64", "64"),
    "as_completed": ("64", "1"),
    "__aiter__": ("64", "1"),
}
"""How many items are held before the loop waits for the reader, and how many are taken at a time."""
RENAMED = {"__aiter__": "__iter__"}
WRAPPERS = {
    "SessionHandle": "SessionHandle(self._crossing, {})",
    "Approvals": "Approvals(self._crossing, {})",
    "Questions": "Questions(self._crossing, {})",
    "OwnWorkspaces": "OwnWorkspaces(self._crossing, {})",
    "list[PendingQuestion]": "[PendingQuestion(self._crossing, each) for each in {}]",
    "ClientCalls": "ClientCalls(self._crossing, {})",
    "ProgressReader": "ProgressReader(self._crossing, {})",
    "FactReader": "FactReader(self._crossing, {})",
    "list[WaitingCall]": "[WaitingCall(self._crossing, each) for each in {}]",
    "list[PendingApproval]": "[PendingApproval(self._crossing, each) for each in {}]",
    "AsyncIterator[WaitingCall]": "(WaitingCall(self._crossing, each) for each in {})",
}
"""How a result of the loop becomes one for threads, by its annotation."""
FORWARDED = {
    ("__init__", "approver"): "wrap_approver(approver, crossing.prompts)",
    ("resume", "approver"): "wrap_approver(approver, crossing.prompts)",
    ("spawn", "approver"): "wrap_approver(approver, self._crossing.prompts)",
    ("fork", "approver"): "wrap_approver(approver, crossing.prompts)",
    ("fork", "channel"): "choose_channel(channel, approver, crossing.prompts)",
    ("__init__", "channel"): "choose_channel(channel, approver, crossing.prompts)",
    ("resume", "channel"): "choose_channel(channel, approver, crossing.prompts)",
    ("__init__", "runtime"): "get_loop_runtime(runtime)",
    ("resume", "runtime"): "get_loop_runtime(runtime)",
}
"""Arguments that do not cross as they are."""
CONSTRUCTORS = {
    "Runtime": "self._begin(partial(on_loop.Runtime, {}))",
    "StoredTrees": "self._stored = trees_on_loop.StoredTrees({})",
    "SessionTree": "crossing = LoopBridge()\nself._hold(crossing, tree_on_loop.SessionTree({}))",
}
RESUME = """crossing = LoopBridge()
resumed = partial(tree_on_loop.SessionTree.resume, {})
tree = cls.__new__(cls)
tree._take_up(crossing, resumed)  # noqa: SLF001 - a tree of this class
return tree"""
FORK = """crossing = LoopBridge()
forked = partial(self._made.fork, {})
tree = type(self).__new__(type(self))
tree._take_up(crossing, forked)  # noqa: SLF001 - as above
return tree"""
PLAIN = (
    ("an async context manager", "a context manager, in a script or a running kernel"),
    ("`async with ", "`with "),
    (";\n``contextlib.aclosing`` around the iterator waits for that.", "\nwithout waiting for their end."),
    ("await ", ""),
)
"""Wording of async docstrings, and what it becomes."""
NOTES = {
    "SessionTree": (
        "The same as :class:`sessiontree.SessionTree`, without ``await``. Any thread may use it; several may "
        "block in it at once. While a call waits for sessions (``run``, ``send``, ``call``, ``map``, "
        "``result``, or the next item of ``as_completed``, ``stream``, ``events``, ``progress``), approval "
        "requests for a plain callable or a "
        "terminal are asked on the thread that waits, one at a time. While no call waits they stay in "
        "``approvals.pending()``."
    ),
    "Runtime": "The same as :class:`sessiontree.Runtime`, for trees without ``await``.",
    "StoredTrees": "The same as :class:`sessiontree.StoredTrees`, without ``await``.",
    "map": "An interrupt cancels the children.",
    "run": "An interrupt cancels it.",
    "as_completed": "An interrupt cancels the children. Arguments are checked with the first step.",
    "call": "An interrupt ends the waiting, not the call.",
    "run_program": "An interrupt ends the waiting, not the program.",
}
"""A paragraph that is added after the first of a docstring."""
ARGUMENT_NOTES = {
    ("SessionTree", "approver"): (
        "A plain callable may block and may use the tree; an ``async`` one runs on the loop."
    ),
    ("SessionTree", "channel"): (
        "``sessiontree.sync.TerminalChannel()`` asks by ``input()``. Messages are delivered on the loop."
    ),
    ("SessionTree", "runtime"): "It is a ``sessiontree.sync.Runtime``.",
    ("spawn", "approver"): "A callable is called on a thread that blocks in the tree.",
}
"""A sentence that is added to the description of an argument."""

ORIGIN = "Written by ``.ci/generate_sync.py`` from the async classes: change those, or the script."

FACES = (
    Face(
        f"{SYNC}/session.py",
        "A session, its approvals, questions and client calls, as a program without ``await`` holds them.",
        """
        from sessiontree.sync.bases import BridgedObject, SessionBase
        from sessiontree.sync.channels import wrap_approver
        from sessiontree.sync.event_buffer import drain_iterator
        """,
        (
            Twin(
                "PendingApproval",
                "api.tree.inbox",
                "BridgedObject",
                methods=("approve", "deny"),
                fields={"request: ApprovalRequest": "What is asked."},
            ),
            Twin("Approvals", "api.tree.inbox", "BridgedObject", methods=("pending", "forget")),
            Twin(
                "PendingQuestion",
                "api.tree.questions",
                "BridgedObject",
                methods=("answer",),
                fields={"question: QuestionRequest": "What is asked."},
            ),
            Twin("Questions", "api.tree.questions", "BridgedObject", methods=("pending",)),
            Twin(
                "WaitingCall",
                "api.tree.client_calls",
                "BridgedObject",
                methods=("call_id", "session_id", "tool", "arguments", "params", "answer", "fail"),
                fields={"call: ClientCall": "The call."},
            ),
            Twin(
                "ClientCalls",
                "api.tree.client_calls",
                "BridgedObject",
                methods=("pending", "__aiter__", "answer", "fail", "params_of"),
            ),
            Twin(
                "OwnWorkspaces",
                "api.tree.own_workspaces",
                "BridgedObject",
                methods=("list", "diff", "merge", "discard"),
            ),
            Twin(
                "SessionHandle",
                "api.tree.session_handle",
                "SessionBase[R]",
                methods=(
                    *("spawn", "map", "as_completed", "call", "run_program", "result", "cancel"),
                    *("interrupt", "status", "history", "transcript", "child_workspaces"),
                ),
            ),
        ),
    ),
    Face(
        f"{SYNC}/tree.py",
        "Trees of sessions, open and stored, and a runtime that serves several, for programs without "
        "``await``.\n\n"
        "Long because the docstrings are repeated from the async classes.",
        """
        from functools import partial
        from sessiontree.api.runtime import runtime as on_loop
        from sessiontree.api.tree import session_tree as tree_on_loop
        from sessiontree.api.stored import stored_trees as trees_on_loop
        from sessiontree.sync.bases import RuntimeBase, TreeBase, get_loop_runtime, run_with_own_lease
        from sessiontree.sync.bridge import LoopBridge
        from sessiontree.sync.channels import choose_channel, wrap_approver
        from sessiontree.sync.event_buffer import FactReader, ProgressReader
        from sessiontree.sync.session import Approvals, ClientCalls, Questions, SessionHandle
        """,
        (
            Twin(
                "Runtime",
                "api.runtime.runtime",
                "RuntimeBase",
                "self.on_loop",
                methods=("__init__", "trees", "shards"),
                made_by_programs=True,
            ),
            Twin(
                "SessionTree",
                "api.tree.session_tree",
                "TreeBase",
                "self._made",
                methods=(
                    *(
                        "__init__",
                        "resume",
                        "tree_id",
                        "state_dir",
                        "main",
                        "session",
                        "approvals",
                        "questions",
                    ),
                    *("client_calls", "events", "progress"),
                    *("fork", "run", "cancel", "finish", "receipt", "usage"),
                ),
                made_by_programs=True,
            ),
            Twin(
                "StoredTrees",
                "api.stored.stored_trees",
                "",
                "self._stored",
                methods=(
                    *("__init__", "state_dir", "export", "load", "fork", "dry_resume", "dry_fork", "replay"),
                    *("erase", "prune", "list"),
                ),
                made_by_programs=True,
            ),
        ),
    ),
)


def main() -> int:
    """Write the files, or compare them; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    check = parser.parse_args().check
    stale = [path for path, text in generated().items() if (ROOT / path).read_text("utf-8") != text]
    for path in stale:
        if not check:
            (ROOT / path).write_text(generated()[path], "utf-8")
        sys.stdout.write(f"{path} {'differs' if check else 'written'}\n")
    return int(check and bool(stale))


def generated() -> dict[str, str]:
    """Return the text of each generated file, by its path in the checkout."""
    return {face.path: formatted(text_of(face), face.path) for face in FACES}


def formatted(text: str, path: str) -> str:
    """Return a module's text as the linter wants it."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *command, "--stdin-filename", str(ROOT / path), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        text = done.stdout or text
    return text


def text_of(face: Face) -> str:
    """Return a module's text, before it is formatted."""
    classes = [class_text(twin, Source(twin.module)) for twin in face.twins]
    sources = {
        source.module: source
        for twin in face.twins
        for source, _ in Source(twin.module).list_classes(twin.name)
    }
    own = {twin.name for twin in face.twins} | set(re.findall(r"\w+", face.imports))
    light, heavy = set[str](), set[str]()
    for source in sources.values():
        used = set(re.findall(r"\w+", "\n".join(classes))) - own
        light |= {line for name, line in source.imports.items() if name in used}
    known = {name for source in sources.values() for name in source.imports}
    for source in sources.values():
        used = set(re.findall(r"\w+", "\n".join(classes))) - own - known
        heavy |= {line for name, line in source.heavy.items() if name in used}
    modules = {
        "from sessiontree.{} import {}".format(*twin.module.rsplit(".", 1))
        for twin in face.twins
        if twin.base == "BridgedObject"
    }
    return "\n".join(
        [
            quoted(f"{face.doc}\n\n{ORIGIN}"),
            "from __future__ import annotations",
            "from collections.abc import Iterator",
            "from typing import TYPE_CHECKING, Any, TypeVar, overload",
            *sorted(light),
            inspect.cleandoc(face.imports),
            "if TYPE_CHECKING:",
            *(f"    {line}" for line in sorted(heavy | modules)),
            "",
            'T = TypeVar("T")' if "[T]" in "".join(classes) else "",
            *classes,
        ]
    )


class Source:
    """The module of an async class: its classes, and where the names in it come from."""

    def __init__(self, module: str) -> None:
        self.module = module
        path = ROOT / "sessiontree" / f"{module.replace('.', '/')}.py"
        self.text = path.read_text("utf-8")
        self.lines = self.text.splitlines()
        self.tree = ast.parse(self.text)
        self.imports = dict(_imports(self.tree.body))
        """What is imported when the module is, by name."""
        self.heavy: dict[str, str] = {}
        """What only annotations name."""
        for node in self.tree.body:
            if isinstance(node, ast.If):
                self.heavy |= dict(_imports(node.body))
            for name in _defined(node):
                self.heavy[name] = f"from sessiontree.{module} import {name}"
        for name in ("T", "_LOG"):
            self.heavy.pop(name, None)

    def definition(self, name: str) -> ast.ClassDef:
        """Return a class."""
        return next(each for each in self.tree.body if isinstance(each, ast.ClassDef) and each.name == name)

    def list_classes(self, name: str) -> list[tuple[Source, ast.ClassDef]]:
        """Return a class and the classes of the API that it is based on, each with its module."""
        defined = self.definition(name)
        found = [(self, defined)]
        for base in defined.bases:
            named = base.value if isinstance(base, ast.Subscript) else base
            imported = self.imports.get(ast.unparse(named), "")
            if place := re.fullmatch(r"from sessiontree\.(api\.[\w.]+) import (\w+)", imported):
                found += Source(place[1]).list_classes(place[2])
        return found


def _imports(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for each in node.names:
                shown = each.name if each.asname is None else f"{each.name} as {each.asname}"
                yield each.asname or each.name, f"from {node.module} import {shown}"


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def class_text(twin: Twin, source: Source) -> str:
    """Return a twin's source."""
    classes = source.list_classes(twin.name)
    original = classes[0][1]
    doc = docstring(original, twin.name)
    if not twin.made_by_programs:
        doc = doc.partition("\n\nArgs:")[0].partition(" Cheap;")[0]
    lines = [
        f"class {twin.name}({twin.base}):" if twin.base else f"class {twin.name}:",
        indented(quoted(doc)),
    ]
    if twin.base == "BridgedObject":
        lines += ["", f"    _inner: {twin.module.rpartition('.')[2]}.{twin.name}"]
    for declared, what in twin.fields.items():
        name, _, kind = declared.partition(": ")
        lines += ["    @property", f"    def {name}(self) -> {kind}:", f'        """{what}"""']
        lines.append(f"        return {twin.inner}.{name}")
    for method in twin.methods:
        for home, owner in classes:
            found = [each for each in owner.body if isinstance(each, FUNCTIONS) and each.name == method]
            lines += [method_text(twin, each, home) for each in found]
            if found:
                break
        else:
            raise SystemExit(f"{twin.module}: {twin.name} has no {method}")
    return "\n".join(lines) + "\n"


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def method_text(twin: Twin, method: ast.FunctionDef | ast.AsyncFunctionDef, source: Source) -> str:
    """Return the twin of a method, or of one of its overloads."""
    decorators = [ast.unparse(each) for each in method.decorator_list]
    arguments = method.args
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    public = [(each, default) for each, default in named if not each.arg.startswith("_")]
    arguments.kwonlyargs = [each for each, _ in public]
    arguments.kw_defaults = [default for _, default in public]
    returns = ast.unparse(method.returns) if method.returns is not None else "None"
    shown = re.sub(r"\bAsyncGenerator\[(.*), None\]", r"Iterator[\1]", returns)
    shown = re.sub(r"\bAsyncIterator\b", "Iterator", shown)
    note = re.search(r"  # noqa: .*", source.lines[method.lineno - 1])
    head = [f"@{each}" for each in decorators]
    name = RENAMED.get(method.name, method.name)
    comment = f"{note[0]}\n" if note else ""
    head.append(f"def {name}({comment}{ast.unparse(arguments)}) -> {shown}:")
    if "overload" in decorators:
        return indented("\n".join(head) + " ...")
    doc = docstring(method, method.name)
    quote = [indented(quoted(doc))] if doc else []
    lines = [*head, *quote, indented(body(twin, method, returns, decorators))]
    return indented("\n".join(lines))


def body(
    twin: Twin, method: ast.FunctionDef | ast.AsyncFunctionDef, returns: str, decorators: list[str]
) -> str:
    """Return how a call crosses to the loop, and how its result comes back."""
    name, inner = method.name, twin.inner
    given = forwarded(method)
    if name == "__init__":
        return CONSTRUCTORS[twin.name].format(given)
    if name == "resume":
        return RESUME.format(given)
    if name == "fork" and twin.name == "SessionTree":
        return FORK.format(given)
    kind = "SessionHandle" if returns.startswith("SessionHandle[") else returns
    wrapper = WRAPPERS.get(kind, "{}")
    if name in ITERATIONS:
        called = f"aiter({inner})" if name == "__aiter__" else f"{inner}.{name}({given})"
        held, at_once = ITERATIONS[name]
        drained = f"drain_iterator(self._crossing, lambda: {called}, {held}, {at_once})"
        return f"return {wrapper.format(drained)}"
    if name in DIRECT:
        return f"return {inner}.{name}" + ("" if "property" in decorators else f"({given})")
    if twin.name in ON_OWN_LEASE:
        crossed = f"run_with_own_lease({inner}.{name}, {given})"
    elif "property" in decorators:
        crossed = f"self._crossing.run(lambda: {inner}.{name})"
    else:
        crossed = f"self._crossing.{'wait' if name in WAITS else 'run'}({inner}.{name}, {given})"
    crossed = crossed.replace(", )", ")")
    if returns == "None":
        return crossed
    if wrapper != "{}":
        return f"return {wrapper.format(crossed)}"
    return f"value: {returns} = {crossed}\nreturn value"


def forwarded(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a method's parameters as arguments of the same call."""
    arguments = method.args
    by_position = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    given = [FORWARDED.get((method.name, each), each) for each in by_position]
    named = [each.arg for each in arguments.kwonlyargs]
    given += [f"{each}={FORWARDED.get((method.name, each), each)}" for each in named]
    return ", ".join([*given, f"**{arguments.kwarg.arg}"] if arguments.kwarg else given)


def docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """Return the docstring of an async class or method as its twin has it."""
    text = ast.get_docstring(node) or ""
    for wording, plain in PLAIN:
        text = text.replace(wording, plain)
    if name in NOTES:
        first, _, rest = text.partition("\n\n")
        text = f"{first}\n\n{filled(NOTES[name])}" + (f"\n\n{rest}" if rest else "")
    for (owner, argument), sentence in ARGUMENT_NOTES.items():
        if owner == name:
            found = re.search(rf"(?m)^    {argument}: .*(?:\n {{8}}.*)*", text)
            if found is None:
                raise SystemExit(f"{name} describes no argument {argument}")
            text = text.replace(found[0], _refilled(f"{found[0]} {sentence}"))
    return text


def filled(text: str, first: str = "", rest: str = "", width: int = 100) -> str:
    """Return a paragraph in lines."""
    lines, line = list[str](), first
    for word in text.split():
        if len(line) + len(word) + 1 > width and line.strip():
            lines.append(line.rstrip())
            line = rest
        line += f"{word} "
    return "\n".join([*lines, line.rstrip()])


def _refilled(argument: str) -> str:
    return filled(" ".join(argument.split()), "    ", "        ")


def quoted(doc: str) -> str:
    """Return a docstring's source."""
    return f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""'


def indented(text: str) -> str:
    """Return lines one step to the right."""
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
