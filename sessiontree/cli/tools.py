"""The command ``sessiontree tools``: every tool, what a policy leaves of them, and schemas by dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sessiontree.api.configuration.plugins import InstalledTool, load_installed_tools
from sessiontree.api.options.options import build_plugin_context, load_plugin_settings, load_policy
from sessiontree.api.runtime.paths import get_default_state_dir, resolve_workspace_root
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.settings import suggest_names
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.catalog import CATALOG, CatalogRow
from sessiontree.policy.compiled import CompiledPolicy, Explanation, compile_policy
from sessiontree.policy.steps import Standing
from sessiontree.programs.found import find_interpreter
from sessiontree.runtime.rights.session_rights import make_tool_standing
from sessiontree.schema.compiled import compile_tool
from sessiontree.schema.dialect import Cleaned, find_dialect


def show_dialect(screen: RichScreen, name: str, installed: Iterable[InstalledTool], *, as_json: bool) -> None:
    """Show every installed tool's schema in a dialect, and what that lost.

    With ``as_json`` one object is printed: ``dialect``, and ``tools``: each ``name``, ``schema``,
    ``is_lossy``, and ``losses``, each ``pointer`` (into the tool's own schema), ``keyword``, ``effect``
    (``same``, ``wider`` or ``narrower``) and ``done``.

    Raises:
        ConfigError: the dialect is unknown.
    """
    dialect = find_dialect(name)
    shown = {each.tool.name: compile_tool(each.tool).clean_for(dialect) for each in installed}
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
    rows = [row for tool, cleaned in sorted(shown.items()) for row in _build_rows(tool, cleaned)]
    screen.table(("tool", "place", "keyword", "takes", "what was done"), rows)
    lossy = sum(cleaned.is_lossy for cleaned in shown.values())
    screen.line(
        f"{lossy} of {len(shown)} tools are shown otherwise; calls are checked against their own schemas"
    )


def _build_rows(tool: str, cleaned: Cleaned) -> list[tuple[str, str, str, str, str]]:
    told = [loss for loss in cleaned.losses if loss.effect != "same"]
    if not told:
        return [(tool, "", "", "the same", "")]
    return [(tool, loss.pointer or "the root", loss.keyword, loss.effect, loss.done) for loss in told]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Whose tools are shown, and under which policy."""

    standing: Standing
    policy: CompiledPolicy
    file: Path | None
    rows: tuple[CatalogRow, ...]
    installed: Mapping[str, InstalledTool]
    """By the tools' names."""

    def to_json(self) -> dict[str, Any]:
        standing = self.standing
        return {
            "kind": str(standing.kind),
            "agent": standing.agent,
            "model": standing.model,
            "group": standing.group,
            "has_channel": standing.has_channel,
            "is_tainted": standing.is_tainted,
            "policy": None if self.file is None else str(self.file),
            "warnings": list(self.policy.warnings),
        }

    def convert_row(self, row: CatalogRow) -> dict[str, Any]:
        brought = self.installed.get(row.name)
        return {
            **row.to_json(),
            "distribution": "" if brought is None else brought.distribution,
            "source": "" if brought is None else brought.source,
        }


def tools(  # noqa: PLR0913 - each is an option of the command
    screen: RichScreen,
    *,
    explain: str | None,
    dialect: str | None,
    policy: Path | None,
    plugins: Path | None,
    channel: bool,
    tainted: bool,
    as_json: bool,
    **who: str,
) -> int:
    """Show all tools and which of them a session holds, or why it does not hold one; return the exit code.

    With ``as_json`` one object is printed: ``kind``, ``agent``, ``model``, ``group``, ``has_channel``,
    ``is_tainted``, ``policy`` (its file or null), ``warnings``, and either ``tools`` (each ``name``,
    ``label``, ``section``, ``tier``, ``kinds``, ``capabilities``, ``optional_capabilities``, ``profiles``,
    ``flags``, ``aliases``, ``plugin``, ``in_openclaw``, ``is_ready``, ``distribution``, ``source``, ``held``,
    ``delegated``)
    or what :meth:`~sessiontree.policy.compiled.Explanation.to_json` says of one tool, with ``is_ready``.

    Args:
        screen: Where it is shown.
        explain: Name of the one tool that is asked about; None = all.
        dialect: Show what models of this dialect are given of each tool instead
            (:func:`~sessiontree.cli.tools.show_dialect`).
        policy: File of the owner's lists, JSON or TOML; None = no lists.
        plugins: File of what the owner says about plugins, JSON or TOML; None = nothing.
        channel: Whether the session, or one above it, has a channel.
        tainted: Whether it has taken in untrusted text.
        as_json: Whether a program reads it.
        who: The session: ``kind``, ``agent``, ``model``, and the ``group`` of its channel.

    Raises:
        ConfigError: the policy, the file about plugins or a plugin can't be used, the kind or the dialect is
            unknown, or two tools claim one name.
    """
    if dialect is not None:
        if explain is not None:
            raise ConfigError("give --explain or --dialect, not both: they show different things")
        show_dialect(screen, dialect, _list_installed("default", "", plugins), as_json=as_json)
        return 0
    if who["kind"] not in set(SessionKind):
        raise ConfigError(f"--kind {who['kind']!r} is not one of {', '.join(SessionKind)}")
    kind = SessionKind(who["kind"])
    standing = make_tool_standing(kind, who["agent"], who["model"], who["group"], has_channel=channel)
    has_interpreter = find_interpreter().is_ready
    standing = replace(standing, is_tainted=tainted, has_interpreter=has_interpreter, has_tool_search=False)
    asked = _ask(standing, policy, _list_installed(standing.agent, standing.group, plugins))
    if explain is not None:
        found = asked.policy.explain(explain, asked.standing)
        _check_known(asked, found.tool)
        _explain(screen, asked, found, as_json=as_json)
    else:
        _show(screen, asked, as_json=as_json)
    return 0


def _list_installed(agent: str, group: str, plugins: Path | None) -> tuple[InstalledTool, ...]:
    """Return what distributions bring along, as they would for a tree over the working directory."""
    root = resolve_workspace_root(".")
    context = build_plugin_context(root, [agent], None, group, get_default_state_dir(root))
    return load_installed_tools(context, load_plugin_settings(plugins))


def _ask(standing: Standing, file: Path | None, installed: tuple[InstalledTool, ...]) -> _Asked:
    plugins = {each.tool.name: each.plugin for each in installed if each.plugin}
    theirs = [row for row in ToolTable((each.tool for each in installed), plugins).rows if row.plugin]
    rows = (*(row for row in CATALOG if row.name not in plugins), *theirs)
    by_name = {each.tool.name: each for each in installed}
    config = load_policy(file)
    policy = compile_policy(rows, config)
    if standing.kind is not SessionKind.WORKER:  # a leaf passes nothing on
        named = frozenset(config.delegates_by_agent.get(standing.agent, ()))
        standing = replace(standing, delegates=named - policy.decide(standing).kept)
    return _Asked(standing, policy, file, rows, by_name)


def _check_known(asked: _Asked, name: str) -> None:
    """Refuse a name that no tool has, now or to come.

    Raises:
        ConfigError: names the nearest.
    """
    known = [row.name for row in asked.rows]
    if name not in known:
        raise ConfigError(f"no tool is named {name!r}; {suggest_names(name, known)}")


def _explain(screen: RichScreen, asked: _Asked, found: Explanation, *, as_json: bool) -> None:
    is_ready = any(row.name == found.tool and row.is_ready for row in asked.rows)
    if as_json:
        screen.raw(dump_json({**asked.to_json(), **found.to_json(), "is_ready": is_ready}))
        return
    screen.line(str(found) + ("" if is_ready or not found.kept else ", once there is such a tool"))
    _warn(screen, asked)


def _show(screen: RichScreen, asked: _Asked, *, as_json: bool) -> None:
    kept = asked.policy.decide(asked.standing).kept
    held = {row.name for row in asked.rows if row.is_ready and row.name in kept}
    if as_json:
        listed = [
            {
                **asked.convert_row(row),
                "held": row.name in held,
                "delegated": row.name in asked.standing.delegates,
            }
            for row in asked.rows
        ]
        screen.raw(dump_json({**asked.to_json(), "tools": listed}))
        return
    header = ("tool", "section", "tier", "kinds", "needs", "profiles", "flags", "also called", "of", "held")
    screen.table(header, [_format_cells(asked, row, held) for row in asked.rows])
    screen.line(f"a {asked.standing.kind} of agent {asked.standing.agent!r} holds {len(held)} of them")
    _warn(screen, asked)


def _format_cells(asked: _Asked, row: CatalogRow, held: set[str]) -> tuple[str, ...]:
    members = row.to_json()
    listed = [", ".join(members[name]) for name in ("kinds", "capabilities", "profiles", "flags", "aliases")]
    said = "to come" if not row.is_ready else "yes" if row.name in held else "no"
    if row.name in asked.standing.delegates:
        said = "children may"
    plugin = f"{row.plugin} ({asked.installed[row.name].distribution})" if row.plugin else ""
    return (row.name, row.section, row.tier.label, *listed, plugin, said)


def _warn(screen: RichScreen, asked: _Asked) -> None:
    for warning in asked.policy.warnings:
        screen.line(f"beware: {warning}")
