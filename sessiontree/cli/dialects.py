"""Dialects: what ``sessiontree tools --dialect`` shows: each tool's schema as a provider's models get it."""

from __future__ import annotations

from collections.abc import Iterable

from sessiontree.api.plugins import InstalledTool
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.jsonable import dump_json
from sessiontree.schema.compiled import compile_tool
from sessiontree.schema.dialect import dialect_named
from sessiontree.schema.loss_report import Cleaned


def show_dialect(screen: RichScreen, name: str, installed: Iterable[InstalledTool], *, as_json: bool) -> None:
    """Show every installed tool's schema in a dialect, and what that lost.

    With ``as_json`` one object is printed: ``dialect``, and ``tools``: each ``name``, ``schema``,
    ``is_lossy``, and ``losses``, each ``pointer`` (into the tool's own schema), ``keyword``, ``effect``
    (``same``, ``wider`` or ``narrower``) and ``done``.

    Raises:
        ConfigError: there is no such dialect.
    """
    dialect = dialect_named(name)
    shown = {each.tool.name: compile_tool(each.tool).shown_in(dialect) for each in installed}
    if as_json:
        tools = [
            {
                "name": tool,
                "schema": cleaned.schema,
                "is_lossy": cleaned.is_lossy,
                "losses": [loss.to_wire() for loss in cleaned.losses],
            }
            for tool, cleaned in sorted(shown.items())
        ]
        screen.raw(dump_json({"dialect": dialect.name, "tools": tools}))
        return
    rows = [row for tool, cleaned in sorted(shown.items()) for row in _rows(tool, cleaned)]
    screen.table(("tool", "place", "keyword", "takes", "what was done"), rows)
    lossy = sum(cleaned.is_lossy for cleaned in shown.values())
    screen.line(
        f"{lossy} of {len(shown)} tools are shown otherwise; calls are checked against their own schemas"
    )


def _rows(tool: str, cleaned: Cleaned) -> list[tuple[str, str, str, str, str]]:
    told = [loss for loss in cleaned.losses if loss.effect != "same"]
    if not told:
        return [(tool, "", "", "the same", "")]
    return [(tool, loss.pointer or "the root", loss.keyword, loss.effect, loss.done) for loss in told]
