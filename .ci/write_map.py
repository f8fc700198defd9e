#!/usr/bin/env python3
"""Write the table of floors in ARCHITECTURE.md from the docstrings of the rooms.

A room's docstring says in its first paragraph what it holds, and then its floor, the room that it is over if
that is on the same floor, and what is not here. Usage: ``python .ci/write_map.py [--check]``; with
``--check`` nothing is written, and the exit code is 1 where the table differs.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
FLOOR = re.compile(r"^Floor (\d)(?:, over ``(\w+)``)?[.,]", re.MULTILINE)
NOT_HERE = re.compile(r"Not here:\s+(.+?)\.(?=\s|$)", re.DOTALL)
BEGIN = "<!-- `make map` writes this table from the rooms' docstrings. -->\n"
END = "<!-- Here the table ends. -->\n"
TOOLS = "tools/sessiontree_tools"


def read_room(module: Path) -> tuple[int, bool, str, str, str]:
    """Return floor, whether it is above a room of its floor, that room, what a room holds, and what not.

    Args:
        module: The room's ``__init__.py``.

    Raises:
        ValueError: the docstring lacks its floor or what is not there.
    """
    said = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    floor, absent = FLOOR.search(said), NOT_HERE.search(said)
    if floor is None or absent is None:
        raise ValueError(f"{module}: its docstring needs `Floor N.` and `Not here: ….`")
    holds = " ".join(said.partition("\n\n")[0].split()).removesuffix(".")
    return int(floor[1]), floor[2] is not None, floor[2] or "", holds, " ".join(absent[1].split())


def write_table(checkout: Path) -> str:
    """Return the table of the rooms of a checkout, by floor.

    Raises:
        ValueError: as for :func:`read_room`.
    """
    modules = (checkout / "sessiontree").glob("*/__init__.py")
    rooms = sorted((*read_room(module)[:2], module.parent.name, *read_room(module)[2:]) for module in modules)
    lines = ["| floor | room | holds | not here |", "|---|---|---|---|"]
    for floor, _, name, below, holds, absent in rooms:
        over = f", over `{below}/`" if below else ""
        lines.append(f"| {floor}{over} | `{name}/` | {holds} | {absent} |".replace("``", "`"))
    tools = checkout / TOOLS / "__init__.py"
    said = " ".join((ast.get_docstring(ast.parse(tools.read_text("utf-8"))) or "").split())
    holds, absent = said.split(". ")[0], NOT_HERE.findall(said)[0]
    lines.append(f"|  | `{TOOLS}/` | {holds}; imports `contracts/` only | {absent} |".replace("``", "`"))
    return "\n".join(lines) + "\n"


def renew(page: str, table: str) -> str:
    """Return a page with the table between its two marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("ARCHITECTURE.md lacks the marks around its table")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def main(checkout: Path, check: bool) -> int:
    """Write the table of a checkout, or compare it; return the exit code."""
    page = checkout / "ARCHITECTURE.md"
    text = page.read_text("utf-8")
    new = renew(text, write_table(checkout))
    if check:
        return int(new != text)
    page.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(CHECKOUT, "--check" in sys.argv[1:]))
