"""``validate_page``: measures a page of the workspace in a browser, and scores it."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.handles.browser import OFFLINE_ORIGIN, Browser, Tab
from sessiontree.contracts.handles.ports import Reader, Web
from sessiontree.contracts.handles.previews import page_type
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import BROWSER, READER, WEB
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree_tools.files.text_file import decode_text, read_whole
from sessiontree_tools.pages.page_files import Reference, is_file, outline_file
from sessiontree_tools.pages.page_scores import (
    CATEGORY_WEIGHTS,
    MIN_FONT,
    MIN_TARGET,
    Category,
    CategoryScore,
    PageBudgets,
    join_scores,
    score_accessibility,
    score_links,
    score_performance,
    score_responsive,
    score_seo,
)
from sessiontree_tools.pages.preview_screenshot import list_console_errors
from sessiontree_tools.pages.rendered_page import ICON, VIEWPORTS, PageFolder, open_page

LOADS: Final = 3
"""How often a page is loaded to time it; the median counts."""
MAX_ELEMENTS: Final = 3_000
"""Elements that are looked at one by one; the count is of all."""
MAX_LISTED: Final = 20
MAX_ISSUES: Final = 40
MAX_OTHER_PAGES: Final = 20
MAX_EXTERNAL: Final = 20
EXTERNAL_S: Final = 10.0
SCRIPT_S: Final = 20.0
"""Longest run of one measurement in the page."""
VALIDATE_S: Final = 90.0
"""Longest validation; a page that needs more is refused."""
LONG_TASK_MS: Final = 50
"""A task blocks the page for as long as it takes longer than this. Source: the metric Total Blocking Time."""
MEASURES: Final = Path(__file__).with_name("page_measures.js")
AXE: Final = "axe_playwright_python"
"""The package with axe-core's script."""
RUN_AXE: Final = """
  const shorten = (text) => String(text ?? "").replace(/\\s+/g, " ").trim().slice(0, 300);
  const found = await axe.run(document, { resultTypes: ["violations"], iframes: false });
  return {
    version: axe.version,
    violations: found.violations.map((each) => ({ id: each.id, impact: each.impact, help: each.help,
      how: shorten(each.nodes[0]?.failureSummary).replace(/^Fix (any|all) of the following: /, ""),
      places: each.nodes.slice(0, 5).map((node) => shorten(node.target.flat().join(" "))) })),
    passes: found.passes.map((each) => each.impact
      ?? axe._audit?.rules.find((rule) => rule.id === each.id)?.impact ?? "minor"),
    unsure: found.incomplete.length,
  };
"""


class BudgetParams(BaseModel):
    """What the page may take."""

    model_config = ConfigDict(extra="forbid")

    largest_paint_ms: float = Field(default=2_500, gt=0, description="Time of the largest paint.")
    layout_shift: float = Field(default=0.1, gt=0, description="Sum of unexpected shifts.")
    blocking_ms: float = Field(default=200, gt=0, description="Time that scripts block the page.")
    transfer_kb: float = Field(default=500, gt=0, description="All files together, in KB.")
    elements: int = Field(default=800, gt=0, description="Elements of the page.")
    requests: int = Field(default=30, gt=0, description="Files that it loads.")


class ValidatePageParams(BaseModel):
    """A page, and what to look at."""

    model_config = ConfigDict(extra="forbid")

    filename: str = Field(default="index.html", min_length=1, description="The page.")
    checks: list[Category] = Field(default_factory=lambda: list(CATEGORY_WEIGHTS), min_length=1)
    budgets: BudgetParams = Field(default_factory=BudgetParams, description="Budgets of performance.")
    min_score: int = Field(default=90, ge=0, le=100, description="Each category needs it to pass.")
    external_links: bool = Field(default=False, description="Ask other sites whether links to them work.")


class ValidatePage(Tool[ValidatePageParams]):
    """Scores a page from measurements in a browser."""

    name = "validate_page"
    description = (
        "Measure a page of the workspace in a browser: accessibility, performance, responsive, seo, links. "
        "Returns scores from 0 to 100, issues with places, and suggestions."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ValidatePageParams
    label = "Check page"
    section = "landing"
    flags = frozenset({ToolFlag.WORKSPACE_ONLY, ToolFlag.OPTIONAL})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "browser"})
    optional_capabilities = frozenset({"web"})
    timeout_s: ClassVar[float | None] = 120.0

    async def execute(self, params: ValidatePageParams, ctx: ToolContext) -> ToolResult:
        """Measure and score the page.

        The output is ``{score, passed, scores, issues, suggestions, measured, not_checked, errors}``:
        ``scores`` by category, ``issues`` as ``{category, rule, severity, text, places}`` (worst first, at
        most 40), ``measured`` the numbers of performance, ``not_checked`` how many links to other sites were
        not asked, ``errors`` of the page's scripts and requests.

        Raises:
            ExecutionError: the page is missing, does not come to rest or answer in time, the browser
                fails, or what checks accessibility is not installed.
            ConfinementUnavailable: this machine can't confine a browser.
            PermissionDenied: the page is outside of what may be read, or links to other sites are to be asked
                and the session reads no web.
        """
        reader, browser = ctx.require(READER), ctx.require(BROWSER)
        web = ctx.require(WEB) if params.external_links else None
        checks = [each for each in CATEGORY_WEIGHTS if each in params.checks]
        files = await run_in_call_thread(ctx, lambda _: PageFolder(reader, params.filename))
        try:
            # Within the call's own limit, so that the model reads what took too long.
            async with asyncio.timeout(VALIDATE_S):
                seen = await _look(browser, files, checks)
        except TimeoutError as error:
            raise ExecutionError(f"the page could not be measured within {VALIDATE_S:g} s") from error
        phone = seen.by_width["mobile"]
        scores: dict[Category, CategoryScore] = {}
        not_checked = 0
        budgets = PageBudgets(**params.budgets.model_dump())
        for check in checks:
            if check == "accessibility":
                scores[check] = score_accessibility(seen.axe)
            elif check == "performance":
                scores[check] = score_performance(seen.timed, phone, budgets)
            elif check == "responsive":
                scores[check] = score_responsive(seen.by_width)
            elif check == "seo":
                scores[check] = score_seo(phone)
            else:
                found = await run_in_call_thread(ctx, lambda stop: _follow(reader, files, phone, stop))
                asked = await _ask_sites(web, found.external)
                scores[check] = score_links(
                    found.checked + len(asked), {**found.broken, **_select_failed(asked)}
                )
                not_checked = len(found.external) - len(asked)
        return _report(params, files.page, seen, scores, not_checked)


class _SeenPage:
    """What was measured of a page."""

    def __init__(self) -> None:
        self.timed: dict[str, Any] = {}
        self.by_width: dict[str, dict[str, Any]] = {}
        """What page_measures.js returned, by viewport."""
        self.axe: dict[str, Any] = {}
        self.errors: list[str] = []


async def _look(browser: Browser, files: PageFolder, checks: Sequence[Category]) -> _SeenPage:
    """Measure a page; only what a check needs.

    Raises:
        ExecutionError: it does not answer in time, or does not come to rest.
    """
    seen, runs = _SeenPage(), list[dict[str, Any]]()
    for _ in range(LOADS if "performance" in checks else 1):
        async with open_page(browser, files, VIEWPORTS["mobile"]) as tab:
            runs.append(_extract_times(await browser.timings(tab_id=tab.tab_id)))
            if seen.by_width:
                continue
            sizes = ("mobile", "tablet", "desktop") if "responsive" in checks else ("mobile",)
            for name in sizes:
                await browser.set_viewport(VIEWPORTS[name], tab_id=tab.tab_id)
                seen.by_width[name] = await _measure(browser, tab)
            if "accessibility" in checks:
                await browser.set_viewport(VIEWPORTS["desktop"], tab_id=tab.tab_id)
                seen.axe = await _run_axe(browser, tab)
            seen.errors = list_console_errors(await browser.console(tab_id=tab.tab_id))
    paints = [run["largest_paint_ms"] for run in runs]
    seen.timed = {
        key: statistics.median(run[key] for run in runs) for key in runs[0] if key != "largest_paint_ms"
    }
    seen.timed["largest_paint_ms"] = None if None in paints else statistics.median(paints)
    return seen


async def _measure(browser: Browser, tab: Tab) -> dict[str, Any]:
    limits: JsonValue = {
        "elements": MAX_ELEMENTS, "listed": MAX_LISTED, "target": MIN_TARGET, "font": MIN_FONT,
    }  # fmt: skip
    # apart from the page's scripts, which could redefine what is asked
    found = await browser.evaluate(
        _load_measuring_script(), argument=limits, world="isolated", tab_id=tab.tab_id, time_s=SCRIPT_S
    )
    if not isinstance(found, dict):
        raise ExecutionError("the page could not be measured: it leads elsewhere, or opens dialogs")
    return cast("dict[str, Any]", found)


async def _run_axe(browser: Browser, tab: Tab) -> dict[str, Any]:
    script = f"async () => {{\n{read_axe()}\n{RUN_AXE}\n}}"
    found = await browser.evaluate(script, world="isolated", tab_id=tab.tab_id, time_s=SCRIPT_S)
    if not isinstance(found, dict):
        raise ExecutionError("the accessibility of the page could not be checked: it opens dialogs")
    return cast("dict[str, Any]", found)


@cache
def _load_measuring_script() -> str:
    return MEASURES.read_text("utf-8")


@cache
def read_axe() -> str:
    """Return axe-core.

    Raises:
        ExecutionError: it is not installed.
    """
    spec = find_spec(AXE)
    if spec is None or spec.origin is None:
        raise ExecutionError(f"{AXE} is missing; install sessiontree[browser], or leave accessibility out")
    return Path(spec.origin).with_name("axe.min.js").read_text("utf-8")


def _extract_times(found: JsonValue) -> dict[str, Any]:
    """Return ``{largest_paint_ms, layout_shift, blocking_ms, transfer_bytes, requests}`` of one load."""
    if not isinstance(found, dict):
        raise ExecutionError("the page could not be timed: it leads elsewhere, or opens dialogs")
    times = cast("dict[str, Any]", found)
    navigation = times["navigation"] or {}
    resources = [each for each in times["resources"] if each["url"] != f"{OFFLINE_ORIGIN}/{ICON}"]
    return {
        "largest_paint_ms": times["largest_paint"],
        "layout_shift": times["layout_shift"],
        "blocking_ms": sum(max(0, each["duration"] - LONG_TASK_MS) for each in times["long_tasks"]),
        "transfer_bytes": navigation.get("encodedBodySize", 0) + sum(each["bytes"] for each in resources),
        "requests": 1 + len(resources),
    }


class _LinkReport:
    """Where the references of a page lead."""

    def __init__(self) -> None:
        self.checked = 0
        self.broken: dict[str, str] = {}
        """Reference to what is wrong with it."""
        self.external: list[str] = []
        """Addresses of other sites, each once."""


def _follow(reader: Reader, files: PageFolder, phone: Mapping[str, Any], stop: Stop) -> _LinkReport:
    """Look up each reference of a page, and what it asked for in vain. Blocks: call it from a thread."""
    found, pages = _LinkReport(), {files.page: frozenset[str](phone["ids"])}
    seen: set[str] = set()
    for each in phone["references"]:
        end_if(stop)
        url = each["url"]
        if url in seen:
            continue
        seen.add(url)
        kind, path, fragment = Reference(url, each["element"], 0).target_from(files.page)
        if kind == "other" or (kind == "anchor" and fragment in {"", "top"}):
            continue
        if kind == "external":
            found.external.append(url)
            continue
        found.checked += 1
        why = _explain_broken(reader, files, kind, path)
        if not why and fragment and fragment != "top":
            why = _explain_no_place(reader, pages, path, fragment, stop)
        if why:
            found.broken[url] = why
    for name in files.missing:
        if not any(name in url for url in found.broken):
            found.checked += 1
            found.broken[name[:300]] = "the page loads a file that is not there"
    return found


def _explain_broken(reader: Reader, files: PageFolder, kind: str, path: str) -> str:
    if kind == "anchor":
        return ""
    # A preview has a secret path in front, so what begins at the root leads out of it.
    if kind == "rooted":
        return "it begins with '/', and a published page is not at the root"
    is_inside = path.startswith(f"{files.folder}/") if files.folder else True
    if kind == "outside" or not is_inside:
        return "it leads out of the page's folder, which alone is published"
    if page_type(path) is None or any(part.startswith(".") for part in path.split("/")):
        return "no such file is published with a page"
    return "" if is_file(reader, path) else "the file is not there"


def _explain_no_place(
    reader: Reader, pages: dict[str, frozenset[str]], path: str, fragment: str, stop: Stop
) -> str:
    if path not in pages:
        # A page may lead to hundreds of others; the places in them are then taken as they are named.
        if len(pages) > MAX_OTHER_PAGES:
            return ""
        text = decode_text(read_whole(reader, reader.stat(path), path))
        pages[path] = outline_file(path, text, stop).ids
    return "" if fragment in pages[path] else f"there is no place {fragment[:100]!r} in {path}"


async def _ask_sites(web: Web | None, urls: Sequence[str]) -> dict[str, str]:
    """Ask sites for addresses; return what is wrong with each, empty = nothing."""
    asked: dict[str, str] = {}
    if web is None:
        return asked
    for url in urls[:MAX_EXTERNAL]:
        try:
            async with asyncio.timeout(EXTERNAL_S):
                page = await web.get(url, max_bytes=1024)
            asked[url] = "" if page.status < 400 else f"the site answers {page.status}"
        except TimeoutError:
            asked[url] = f"the site did not answer within {EXTERNAL_S:g} s"
        except ToolError as error:
            asked[url] = error.message
    return asked


def _select_failed(asked: Mapping[str, str]) -> dict[str, str]:
    return {url: why for url, why in asked.items() if why}


def _report(
    params: ValidatePageParams,
    page: str,
    seen: _SeenPage,
    scores: Mapping[Category, CategoryScore],
    not_checked: int,
) -> ToolResult:
    order = ("critical", "serious", "moderate", "minor")
    issues = sorted(
        (issue for score in scores.values() for issue in score.issues),
        key=lambda issue: order.index(issue.severity),
    )
    suggestions = dict.fromkeys(f"{issue.rule}: {issue.suggestion}" for issue in issues if issue.suggestion)
    total = join_scores(scores)
    passed = all(score.score >= params.min_score for score in scores.values())
    by_category: dict[str, JsonValue] = {name: score.score for name, score in scores.items()}
    measured: dict[str, JsonValue] = dict(seen.timed) if "performance" in scores else {}
    if seen.axe:
        measured["axe"] = seen.axe["version"]
        measured["axe_unsure"] = seen.axe["unsure"]
    output: dict[str, JsonValue] = {
        "score": total,
        "passed": passed,
        "scores": by_category,
        "issues": [issue.to_json() for issue in issues[:MAX_ISSUES]],
        "suggestions": list[JsonValue](suggestions)[:MAX_LISTED],
        "measured": measured,
        "not_checked": not_checked,
        "errors": list[JsonValue](seen.errors),
    }
    words = ", ".join(f"{name} {score}" for name, score in by_category.items())
    return ToolResult(
        output=output, display=f"{page}: {total} ({words}), {len(issues)} issues", details=output
    )
