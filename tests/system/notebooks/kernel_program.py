"""A notebook's kernel as small as it can be: cells run in ``__main__``, one by one, on a running loop.

Run as ``python -m tests.system.notebooks.kernel_program``. Each line of its input is a JSON object with a
``cell`` and the lines ``typed`` for it. It answers each by one line: what the cell ``printed``, its last
expression as ``shown``, and the ``error`` it ended with, as a name and a text.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import Any

MAX_BYTES = 2**22


async def run(source: str, number: int, names: dict[str, Any]) -> Any:
    """Run a cell, with ``await`` allowed at its top level, and return the value of its last expression."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    parsed = ast.parse(source, name)
    parts: list[ast.Module | ast.Expression] = [parsed]
    if parsed.body and isinstance(last := parsed.body[-1], ast.Expr):
        del parsed.body[-1]
        parts.append(ast.Expression(last.value))
    value = None
    for part in parts:
        mode = "exec" if part is parsed else "eval"
        made = compile(part, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(made, names)  # noqa: S307 - running what it is given is what a kernel is for
        if inspect.iscoroutine(value) and made.co_flags & inspect.CO_COROUTINE:
            value = await value
    return value


@contextmanager
def keyboard(typed: list[str]) -> Iterator[None]:
    """Have ``input()`` read lines that were typed for a cell."""
    before, sys.stdin = sys.stdin, io.StringIO("".join(f"{line}\n" for line in typed))
    try:
        yield
    finally:
        sys.stdin = before


async def serve(names: dict[str, Any]) -> None:
    """Run cell after cell to the last."""
    asked = asyncio.StreamReader(limit=MAX_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    number = 0
    while line := await asked.readline():
        number += 1
        order, screen = json.loads(line), io.StringIO()
        shown = error = None
        with redirect_stdout(screen), keyboard(order["typed"]):
            try:
                value = await run(order["cell"], number, names)
                shown = None if value is None else repr(value)
            except BaseException as raised:  # noqa: BLE001 - a kernel outlives whatever its cells raise
                error = [type(raised).__name__, str(raised)]
        sys.stdout.write(json.dumps({"printed": screen.getvalue(), "shown": shown, "error": error}) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Serve, with a ``__main__`` of the cells' own, as a notebook's kernel has it."""
    user = sys.modules["__main__"] = ModuleType("__main__")
    # Not asyncio.run: an interrupt is for the cell that runs, not for the kernel.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(serve(vars(user)))
    loop.close()


if __name__ == "__main__":
    main()
