"""Every built-in tool keeps its contract, and a broken tool is found out."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sessiontree import CHANNEL, READER, WRITER, PermissionTier, Tool, ToolContext, ValidationError, tool
from sessiontree.testing.tool_contract import Part, ToolCase, ToolContract, check_tool_contract
from tests.behaviour.contract_fixtures import AT_ONCE, LINES, SHORT, TEXT, TOOLS
from tests.behaviour.tool_contract_fixtures import every_contract
from tests.unit.web.site_fakes import Site, answer, serving

LEFT: list[subprocess.Popen[bytes]] = []
HITS = b'{"results": [{"title": "One", "url": "http://one.example/", "content": "says"}]}'


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site with a page, a huge one, one of bytes, and one that does not come."""

    async def respond(request: str, writer: asyncio.StreamWriter) -> None:
        path = request.split(" ")[1]
        if "slow" in path:
            await asyncio.sleep(60)
        body = {"/page": b"hello", "/huge": LINES, "/bytes": b"a\xff\xfeb"}.get(path, HITS)
        await answer(b"\xff" if "q=bytes" in path else body)(request, writer)

    async with serving(respond) as site:
        yield site


ON_PAGES = ("browser", "preview_screenshot", "validate_page")
"""Tools of which almost every check starts a browser."""
LATER: dict[Part, str] = dict.fromkeys(get_args(Part), "it starts a browser: in the long run")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in ON_PAGES)) for name in TOOLS]
)
async def test_built_in_tool_keeps_its_contract(name: str, site: Site, tmp_path: Path) -> None:
    """Each check of the contract, in trees on the local backend."""
    contracts = every_contract(site.url, site.port)
    report = await check_tool_contract(contracts[name], tmp_path)
    assert report.passed


@pytest.mark.parametrize("name", ON_PAGES)
async def test_tool_for_pages_keeps_the_first_parts_of_its_contract(
    name: str, site: Site, tmp_path: Path
) -> None:
    """Schema, a success, kinds, tier and handles: the short form of the test above."""
    whole = every_contract(site.url, site.port)[name]
    short = replace(whole, cases=whole.cases[:1], slow=None, huge=None, undecodable=None, not_checked=LATER)
    report = await check_tool_contract(short, tmp_path)
    assert {"kind: worker", "capability: without its handles it is refused"} <= set(report.passed)


@pytest.mark.long
@pytest.mark.parametrize("name", TOOLS)
async def test_built_in_tool_keeps_its_contract_on_ray(name: str, site: Site, tmp_path: Path) -> None:
    """The checks that cross processes."""
    contracts = every_contract(site.url, site.port)
    report = await check_tool_contract(contracts[name], tmp_path, backend="ray")
    assert report.passed


async def test_tool_of_a_program_has_a_contract_too(tmp_path: Path) -> None:
    """A function with ``@tool``; the report lists what was checked, and what was not."""
    contract = ToolContract(
        double, (ToolCase("two", {"number": 2}, says="4"),), not_checked={**AT_ONCE, **SHORT, **TEXT}
    )
    report = await check_tool_contract(contract, tmp_path)
    assert report.passed[0] == "schema: every dialect takes the first case"
    assert {"case: two", "kind: worker", "restart: before its work"} <= set(report.passed)
    assert report.not_checked["slow"] == AT_ONCE["slow"]


@dataclass(frozen=True, slots=True)
class Broken:
    """A tool that breaks its contract in one way."""

    tool: Tool[Any]
    case: ToolCase
    check: str
    """The check that must fail."""
    says: str
    is_slow: bool = False
    """Whether its contract says that the call lasts."""


@tool(tier=PermissionTier.READ_ONLY)
async def double(number: int) -> int:
    """Double a number.

    Args:
        number: It.
    """
    return number * 2


@tool(tier=PermissionTier.READ_ONLY)
async def leave_process(number: int) -> int:
    """Start a process and leave it.

    Args:
        number: How many seconds it sleeps.
    """
    if not LEFT:
        LEFT.append(subprocess.Popen(["sleep", str(number)]))  # noqa: ASYNC220 - it must be found
    return number


@tool(tier=PermissionTier.WORKSPACE, idempotent=True, capabilities=[READER, WRITER])
async def append(text: str, ctx: ToolContext) -> str:
    """Add to a file, and say wrongly that a repetition does nothing.

    Args:
        text: What to add.
        ctx: The call's context.
    """
    with ctx.require(READER).open("log") as file:
        before = file.read()
    ctx.require(WRITER).write("log", before + text.encode())
    return "added"


@tool(tier=PermissionTier.SYSTEM, capabilities=[CHANNEL])
async def claim(text: str, ctx: ToolContext) -> str:
    """Claim a handle without using it.

    Args:
        text: Anything.
        ctx: The call's context.
    """
    return text


BROKEN = (
    Broken(leave_process, ToolCase("one", {"number": 30}), "case: one", "processes are left"),
    Broken(
        append, ToolCase("one", {"text": "x"}, files={"log": b""}), "restart: after", "changed the workspace"
    ),
    Broken(claim, ToolCase("one", {"text": "x"}), "capability", "works without any handle"),
    Broken(double, ToolCase("one", {"number": 1}, says="3"), "case: one", "'3' is not in"),
    Broken(double, ToolCase("one", {"numbers": 1}), "schema", "numbers"),
    Broken(double, ToolCase("one", {"number": 1}), "time-out", "nothing of a time limit", is_slow=True),
    Broken(
        double,
        ToolCase("one", {"number": 1}),
        "cancellation",
        "(before it could be|has a result)",
        is_slow=True,
    ),
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.tool.name}: {broken.check}")
async def test_broken_tool_is_found_out(broken: Broken, tmp_path: Path) -> None:
    """Each check can fail; the error names the check and what was wrong."""
    contract = ToolContract(
        broken.tool,
        (broken.case,),
        slow=broken.case if broken.is_slow else None,
        not_checked={**({} if broken.is_slow else AT_ONCE), **SHORT, **TEXT},
    )
    try:
        with pytest.raises(AssertionError, match=f"- {broken.check}.*{broken.says}"):
            await check_tool_contract(contract, tmp_path, end_s=1.0)
    finally:
        for process in LEFT:
            process.kill()
            process.wait()
        LEFT.clear()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cases": ()}, "the first case must be a success"),
        ({"cases": (ToolCase("no number", {}, error=ValidationError),)}, "the first case must be a success"),
        ({"not_checked": SHORT}, "'slow'"),
        ({"slow": ToolCase("two", {"number": 2})}, "'slow'"),
    ],
)
async def test_contract_says_everything(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Each part has a case or a reason, not both."""
    whole = ToolContract(double, (ToolCase("two", {"number": 2}),), not_checked={**AT_ONCE, **SHORT, **TEXT})
    with pytest.raises(AssertionError, match=says):
        await check_tool_contract(replace(whole, **given), tmp_path)
