"""The pages of the site that no file of ``docs/`` holds, and the links that are made at its build.

Generated are the reference, grouped by the module that defines a name; the page of the tests that hold the
promises; the list of decisions; and the documents of the top folder. A statement's number becomes an anchor
where it is defined and a link where it is cited. Nothing here imports the package, so the site is built
without its dependencies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path

GROUPS: Mapping[str, tuple[str, str]] = {
    "trees": ("Trees, sessions, runtimes", r"api\.|runtime\."),
    "models": ("Models", r"models\.|contracts\.model_settings"),
    "tools": (
        "Tools",
        r"contracts\.(?:tool|decorator|context|client_tool|schema_tool|plugins|ports|results|jsonable)$|schema\.",
    ),
    "approvals": ("Approvals, channels, policies", r"channels\.|policy\.|contracts\.(?:approvals|senders)$"),
    "hooks": ("Hooks", r"hooks\.|contracts\.hooks$"),
    "messages": ("Messages, events, facts", r"contracts\.(?:messages|events|stimuli|codec)$|journal\."),
    "memory": ("Memory and the web", r"memory\.|web\.|contracts\.memory$"),
    "errors": ("Errors", r"contracts\.errors$"),
    "settings": ("Settings and values", ""),
}
"""Pages of the reference: title, and the modules whose public names are there. The first that fits counts;
the last one holds what is left."""
FIRST = ("SessionTree", "SessionHandle", "Runtime", "Tool", "tool", "Model", "SessionTreeError")
"""Names at the top of their page; the others follow by the alphabet."""
ROOMS: Mapping[str, str] = {"sync": "Without await", "bench": "Benchmark suites"}
"""Rooms with public names of their own."""
TOP: Mapping[str, str] = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Documents of the top folder, and their pages."""
FOLDERS: Mapping[str, str] = {"docs/decisions": "decisions/index.md"}
"""Folders that documents link to, and their pages."""
STATEMENT = re.compile(r"^- ([A-Z]{3,4}\d+)\. ", re.MULTILINE)
CITED = re.compile(r"\b[A-Z]{3,4}\d+\b")
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`|\]\([^)]*\))", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
TESTS = "tests.md"
NOT_PROMISED = "\n## Not promised\n"


def read_public_names(module: Path) -> dict[str, str]:
    """Return public name to the module that defines it, from the imports of a package's ``__init__``.

    Args:
        module: The ``__init__.py``; imports for type checking count.
    """
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sessiontree."):
            found |= {alias.asname or alias.name: str(node.module) for alias in node.names}
    return {name: home for name, home in found.items() if name != "import_guard"}


def group_names(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return group to the public names on its page, sorted."""
    grouped: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, home in names.items():
        place = home.removeprefix("sessiontree.")
        fitting = (group for group, (_, pattern) in GROUPS.items() if re.match(pattern, place))
        grouped[next(fitting)].append(name)
    return {group: sorted(found, key=_rank) for group, found in grouped.items()}


def _rank(name: str) -> tuple[int, str]:
    return (FIRST.index(name) if name in FIRST else len(FIRST), name.lower())


def write_reference(checkout: Path) -> dict[str, str]:
    """Return the pages of the reference by their place in the site."""
    package = checkout / "sessiontree"
    names = read_public_names(package / "__init__.py")
    pages = {}
    for group, found in group_names(names).items():
        lines = [f"::: {names[name]}.{name}" for name in found]
        pages[f"reference/{group}.md"] = "\n\n".join([f"# {GROUPS[group][0]}", *lines]) + "\n"
    for room, title in ROOMS.items():
        exported = read_public_names(package / room / "__init__.py")
        lines = [f"::: {home}.{name}" for name, home in sorted(exported.items())]
        said = (
            ast.get_docstring(ast.parse((package / room / "__init__.py").read_text("utf-8"))) or ""
        ).split("\n")
        pages[f"reference/{room}.md"] = "\n\n".join([f"# {title}", said[0], *lines]) + "\n"
    return pages


def list_decisions(checkout: Path) -> str:
    """Return the page that lists the decisions with their status."""
    lines = []
    for page in sorted((checkout / "docs" / "decisions").glob("[0-9]*.md")):
        text = page.read_text("utf-8")
        title = text.partition("\n")[0].partition(". ")[2]
        status = text.split("\n\n")[1].removeprefix("Status: ")
        lines.append(f"| {page.name[:3]} | [{title}]({page.name}) | {status} |")
    head = "Each says the problem, the options, the choice, the reason, and when to look again."
    table = "\n".join(["| | decision | status |", "|---|---|---|", *lines])
    return f"# Decisions\n\n{head}\n\n{table}\n"


def list_modules(checkout: Path) -> str:
    """Return the page with the first line of each module's docstring, by room."""
    parts = [
        "# Modules\n\nWhat each module says of itself; [architecture.md](architecture.md) has the rooms.\n"
    ]
    for package in (checkout / "sessiontree", checkout / "tools" / "sessiontree_tools"):
        folder = ""
        for path in sorted(package.rglob("*.py"), key=lambda each: (each.parent.as_posix(), each.name)):
            said = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
            place = path.parent.relative_to(package.parent).as_posix()
            if place != folder:
                folder = place
                parts.append(f"\n## {place}\n\n| module | holds |\n|---|---|")
            if path.name != "__init__.py":
                parts.append(f"| `{path.name}` | {said.replace('``', '`').replace('|', '&#124;')} |")
    return "\n".join(parts) + "\n"


def find_covering(checkout: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Return statement to the tests whose marker names it: file, name, source of the test."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for path in sorted((checkout / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "covers(" not in text:
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.covers":
                    first = min(each.lineno for each in node.decorator_list)
                    source = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
                    entry = (path.relative_to(checkout).as_posix(), node.name, source)
                    for word in mark.args:
                        found.setdefault(ast.literal_eval(word), []).append(entry)
    return found


def anchor(file: str, test: str) -> str:
    """Return the anchor of a test on the page of tests."""
    return f"{Path(file).stem}-{test}".replace("_", "-")


def write_tests(promises: str, covering: Mapping[str, list[tuple[str, str, str]]]) -> str:
    """Return the page with the source of each test that holds a promise."""
    held = STATEMENT.findall(promises.partition(NOT_PROMISED)[0])
    tests = sorted({entry for statement in held for entry in covering.get(statement, [])})
    parts = ["---\nsearch:\n  exclude: true\n---\n# Tests of the promises\n"]
    parts += [
        f"## {test.removeprefix('test_').replace('_', ' ')} {{#{anchor(file, test)}}}\n\n`{file}`\n\n"
        f"```python\n{source}\n```\n"
        for file, test, source in tests
    ]
    return "\n".join(parts)


def name_tests(promises: str, covering: Mapping[str, list[tuple[str, str, str]]]) -> str:
    """Return the page of promises with the tests behind each statement."""
    text, mark, rest = promises.partition(NOT_PROMISED)
    pieces = re.split(r"(?m)^(?=- [A-Z]{3,4}\d+\. )", text)
    for number, piece in enumerate(pieces):
        found = STATEMENT.match(piece)
        if found:
            item, blank, behind = piece.partition("\n\n")
            links = ", ".join(
                f"[{test.removeprefix('test_').replace('_', ' ')}]({TESTS}#{anchor(file, test)})"
                for file, test, _ in covering.get(found[1], [])
            )
            pieces[number] = f"{item.rstrip()}<br>*Held by {links}*\n{blank[1:]}{behind}"
    return "".join(pieces) + mark + rest


def find_statements(pages: Mapping[str, str]) -> dict[str, str]:
    """Return statement to the page that defines it."""
    return {name: page for page, text in pages.items() for name in STATEMENT.findall(text)}


def link_statements(text: str, page: str, statements: Mapping[str, str]) -> str:
    """Return a page whose statements have anchors and whose citations are links.

    Args:
        text: The page.
        page: Its place in the site.
        statements: Each statement's page.
    """
    up = "../" * page.count("/")

    def link(cited: re.Match[str]) -> str:
        home = statements.get(cited[0])
        return cited[0] if home is None else f"[{cited[0]}]({up}{home}#{cited[0].lower()})"

    defined = STATEMENT.split(text)
    parts = [_link_prose(defined[0], link)]
    for name, body in zip(defined[1::2], defined[2::2], strict=True):
        parts.append(f'- <span id="{name.lower()}"></span>**{name}.** {_link_prose(body, link)}')
    return "".join(parts)


def _link_prose(text: str, link: Callable[[re.Match[str]], str]) -> str:
    pieces = CODE.split(text)
    return "".join(piece if number % 2 else CITED.sub(link, piece) for number, piece in enumerate(pieces))


def move_links(text: str, place: str) -> str:
    """Return a document whose links lead to pages of the site; a link to other files is its text alone.

    Args:
        text: The document.
        place: Its path in the checkout, such as ``docs/programs.md``.
    """
    here = TOP.get(place, place.removeprefix("docs/"))

    def move(link: re.Match[str]) -> str:
        picture, label, target, fragment = link[1], link[2], link[3], link[4] or ""
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        parts: list[str] = []
        for part in (*Path(place).parent.parts, *target.split("/")):
            if part == "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        path = "/".join(parts)
        if path not in TOP and not path.startswith("docs/"):
            return label
        found = {**TOP, **FOLDERS}.get(path, path.removeprefix("docs/"))
        return f"{picture}[{label}]({'../' * here.count('/')}{found}{fragment})"

    return LINK.sub(move, text)
