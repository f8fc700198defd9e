"""Build a landing page: write it, look at it, measure it, correct it, publish it.

    python docs/examples/landing_page.py                             # a script is the model; no key needed
    python docs/examples/landing_page.py --model openai:gpt-5 --task "A page for a bakery"

The page and its pictures stay in `build/demo-landing/workspace`.
It needs `sessiontree[browser,serve]` and Chromium.

The script stands for a model: it begins with a page that has faults, reads the results of its calls, and
corrects what `validate_page` reports. It has no eyes, so of a picture it reads only which files are missing.
"""

import argparse
import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from sessiontree import (
    AgentSpec,
    Answer,
    FunctionModel,
    Message,
    ModelRequest,
    SessionTree,
    ToolCall,
    ToolResultMessage,
    script_call,
)

PROMPT = (
    "You are a landing page builder. Generate a beautiful, responsive landing page based on the user's "
    "description. Use the available tools to write files, preview the result, validate quality, and iterate "
    "until the page meets high standards."
)
"""Source: seed 002, section 9."""
TOOLS = ("write_html", "preview_screenshot", "validate_page", "deploy_preview")
TASK = (
    "A landing page for Tidewater, a wall clock that shows the tide. Quiet, warm, a drawing of the clock. "
    "Write it in site/, keep pictures of it at all three sizes in screenshots/, and give me its address."
)
SOURCE = Path(__file__).resolve().with_name("landing_page")
PLACE = Path("build/demo-landing")
PAGE = "site/index.html"
DRAWINGS = ("img/mark.svg", "img/harbour.svg")
SIZES = ("desktop", "tablet", "mobile")
MAX_ROUNDS = 4


class Fault(NamedTuple):
    """What is wrong in the first draft, and which rules of `validate_page` report it."""

    rules: frozenset[str]
    file: str
    good: str
    bad: str


def fault(rules: str, file: str, good: str, bad: str) -> Fault:
    return Fault(frozenset(rules.split()), file, good, bad)


FAULTS = (
    fault("html-has-lang language", "index.html", '<html lang="en">', "<html>"),
    fault("viewport", "index.html", 'name="viewport"', 'name="view"'),
    fault("title", "index.html", "<title>Tidewater: the clock that follows the sea", "<title>Page"),
    fault("description", "index.html", 'name="description"', 'name="about"'),
    fault("canonical", "index.html", 'rel="canonical"', 'rel="original"'),
    fault("open_graph", "index.html", 'property="og:type"', 'property="type"'),
    fault("image-alt image_alternatives", "index.html", 'harbour.svg" alt=', 'harbour.svg" data-alt='),
    fault("unsized_images", "index.html", 'width="720" height="480"', 'data-size="720 480"'),
    fault("label", "index.html", '<label for="mail">', '<label for="post">'),
    fault("heading-order heading_order", "index.html", "<h2>How it works</h2>", "<h5>How it works</h5>"),
    fault("broken", "index.html", '<a href="#order">Order</a>', '<a href="#prices">Order</a>'),
    fault("color-contrast", "styles.css", "--muted: #4b6470;", "--muted: #b9c4c9;"),
    fault(
        "overflow_mobile overflow_tablet",
        "styles.css",
        ".made { grid-template-columns: 1fr; }",
        ".made { min-width: 60rem; }",
    ),
    fault(
        "small_text small_targets target-size",
        "styles.css",
        "nav a { padding: .4rem 0;",
        "nav a { font-size: .6rem;",
    ),
)


def page_with(corrected: frozenset[str]) -> dict[str, str]:
    """Return the files of the page; it has the faults that no corrected rule reports."""
    files = {name: (SOURCE / name).read_text("utf-8") for name in ("index.html", "styles.css")}
    for each in FAULTS:
        if each.rules.isdisjoint(corrected):
            files[each.file] = files[each.file].replace(each.good, each.bad)
    return files


def results_in(messages: Any) -> list[ToolResultMessage]:
    return [message for message in messages if isinstance(message, ToolResultMessage)]


def rules_in(result: ToolResultMessage) -> frozenset[str]:
    """Return the rules that a validation reports."""
    return frozenset(issue["rule"] for issue in json.loads(result.text)["issues"])


def reply(request: ModelRequest) -> Answer:
    """Return what comes next; the conversation alone decides."""
    results = results_in(request.messages)
    failed = [result for result in results if result.is_error]
    validations = [result for result in results if result.tool_name == "validate_page"]
    if failed:
        return f"{failed[0].tool_name} failed, so the page is not ready: {failed[0].text}"
    if not validations:
        return make_draft(results)
    last = results[-1]
    if last.tool_name == "write_html":
        return ["Is it better now?", script_call("validate_page", filename=PAGE)]
    if last.tool_name == "validate_page":
        return correct(validations)
    if last.tool_name == "preview_screenshot":
        return ["It is ready to be looked at.", script_call("deploy_preview", project_dir="site")]
    return f"Your landing page is ready at {json.loads(last.text)['preview_url']}"


def make_draft(results: list[ToolResultMessage]) -> Answer:
    """Write the first draft and look at it, until it can be measured."""
    draft = page_with(frozenset())
    if not results:
        return ["The structure first.", write("index.html", draft["index.html"])]
    last = results[-1]
    if len(results) == 1:
        return ["Then the style.", write("styles.css", draft["styles.css"])]
    if last.tool_name == "write_html":
        viewport = "desktop" if len(results) == 2 else "mobile"
        return ["A look at it.", script_call("preview_screenshot", filename=PAGE, viewport=viewport)]
    drawings = [name for name in DRAWINGS if name in last.text.partition("missing")[2]]
    if drawings:
        drawn = [write(name, (SOURCE / name).read_text("utf-8")) for name in drawings]
        return ["The drawings are missing.", *drawn]
    return ["How good is it?", script_call("validate_page", filename=PAGE)]


def correct(validations: list[ToolResultMessage]) -> Answer:
    """Correct what the last validation reports; without anything to correct, take the pictures."""
    *earlier, latest = (rules_in(each) for each in validations)
    corrected = frozenset[str]().union(*earlier)
    before, after = page_with(corrected), page_with(corrected | latest)
    changed = [name for name in after if after[name] != before[name]]
    if changed and len(validations) < MAX_ROUNDS:
        words = f"{len(latest)} rules report something; I correct what I can."
        return [words, *(write(name, after[name]) for name in changed)]
    pictures = [
        script_call("preview_screenshot", filename=PAGE, viewport=size, save_as=f"screenshots/{size}.png")
        for size in SIZES
    ]
    return ["It can be shown now.", *pictures]


def write(name: str, content: str) -> ToolCall:
    return script_call("write_html", filename=f"site/{name}", content=content)


def show(messages: list[Message], begun: float) -> dict[str, dict[str, Any]]:
    """Print the steps; return the first and the last validation."""
    validations: list[dict[str, Any]] = []
    for result in results_in(messages):
        words = result.text.partition("\n")[0]
        if result.tool_name == "write_html" and not result.is_error:
            said = json.loads(result.text)
            remarks = {key: said[key] for key in ("problems", "missing", "rooted", "external") if key in said}
            words = f"{said['path']}, {said['size']:,} bytes" + (f"; {remarks}" if remarks else "")
        elif result.tool_name == "validate_page" and not result.is_error:
            validations.append(json.loads(result.text))
            said = validations[-1]
            words = f"{said['score']}: {said['scores']}, {len(said['issues'])} issues"
        print(f"{result.tool_name:>18}  {words[:150]}")
    print(f"\n{time.monotonic() - begun:.1f} s for {len(results_in(messages))} calls\n")
    return {"before": validations[0], "after": validations[-1]} if validations else {}


def print_scores(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, score in before["scores"].items():
        print(f"{name:>18}  {score:>3} -> {after['scores'].get(name, '-'):>3}")
    print(f"{'the page':>18}  {before['score']:>3} -> {after['score']:>3}\n")


async def main() -> int:
    parser = argparse.ArgumentParser(description="Build a landing page.")
    parser.add_argument("--model", help="such as openai:gpt-5; without it a script is the model")
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--backend", choices=("ray", "local"), default="local")
    given = parser.parse_args()
    shutil.rmtree(PLACE, ignore_errors=True)
    workspace = PLACE / "workspace"
    workspace.mkdir(parents=True)
    agents = {"default": AgentSpec(prompt=PROMPT, tools=TOOLS)}
    model = given.model or FunctionModel(reply)
    begun = time.monotonic()
    place = PLACE / "state"
    async with SessionTree(
        workspace,
        model=model,
        agents=agents,
        approvals="auto",
        backend=given.backend,
        state_dir=place,
    ) as tree:
        answer = str(await tree.main.send(given.task))
        scores = show(tree.main.history(), begun)
        if scores:
            print_scores(scores["before"], scores["after"])
        print(answer)
        for picture in sorted((workspace / "screenshots").glob("*.png")):
            print(f"  {picture}")
        url = answer.rpartition(" ")[2]
        if url.startswith("http://127.0.0.1:"):
            with await asyncio.to_thread(urlopen, url) as served:
                print(f"  {url} answers {served.status}")
            if sys.stdin.isatty():
                await asyncio.to_thread(input, "Open the address; press Enter to end it. ")
    return 0 if scores and scores["after"]["passed"] else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
