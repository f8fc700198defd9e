"""``deploy_preview``: which files are published, and that links swapped meanwhile lead nowhere."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.handles.previews import MAX_PAGE_BYTES, MAX_PAGE_FILES
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.testing.context import RecordingPreviews, call_tool, make_context
from sessiontree.workspace import WorkspaceReader
from sessiontree_tools.pages.deploy_preview import DeployPreview, copy_page

SECRET = b"from outside the workspace"


def site(root: Path) -> Path:
    """Make a page in a folder, and what must not be published near it."""
    page = root / "site"
    (page / "img").mkdir(parents=True)
    (page / "index.html").write_text("<title>a</title>")
    (page / "img/bee.PNG").write_bytes(b"\x89PNG")
    for name in (".env", "notes.md", "run.py", "noending"):
        (page / name).write_text("private")
    (page / ".git").mkdir()
    (page / ".git/index.html").write_text("private")
    (page / "link.css").symlink_to("index.html")
    (root / "outside.css").write_text("not of the page")
    return page


@pytest.mark.covers("U20")
async def test_files_of_the_page_are_published(tmp_path: Path) -> None:
    """Relative to its folder; hidden files, links and files of other kinds stay at home."""
    site(tmp_path)
    previews = RecordingPreviews()
    ctx = make_context(tmp_path, previews=previews)
    result = await call_tool(DeployPreview(), ctx, project_dir="site/")
    assert previews.published == {"site": {"index.html": b"<title>a</title>", "img/bee.PNG": b"\x89PNG"}}
    url = "http://127.0.0.1:1/site/index.html"
    assert result.output == {
        "preview_url": url, "deployed": True, "files": 2, "bytes": 20, "replaced": False, "left_out": 6,
    }  # fmt: skip
    assert result.artifacts == (Artifact("reference", "preview", uri=url),)
    assert result.display == f"published 2 files at {url}"
    again = await call_tool(DeployPreview(), ctx, project_dir="site", entry="./index.html")
    assert isinstance(again.output, dict)
    assert again.output["replaced"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"project_dir": "missing"}, ExecutionError, "missing"),
        ({"project_dir": "site/index.html"}, ExecutionError, "not a folder"),
        ({"project_dir": ".."}, PermissionDenied, "outside"),
        ({"project_dir": "out"}, PermissionDenied, "outside"),
        ({"project_dir": "site", "entry": "other.html"}, ExecutionError, "no 'other.html'"),
        ({"project_dir": "site", "entry": "../outside.css"}, ExecutionError, "no '../outside.css'"),
        ({"project_dir": "many"}, ExecutionError, f"more than {MAX_PAGE_FILES} files"),
        ({"project_dir": "large"}, ExecutionError, "bytes"),
    ],
)
async def test_what_is_no_page_is_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Nothing is published then."""
    root = tmp_path / "root"
    site(root)
    (root / "out").symlink_to(tmp_path)
    (root / "many").mkdir()
    for number in range(MAX_PAGE_FILES + 1):
        (root / f"many/{number}.txt").touch()
    (root / "large").mkdir()
    with (root / "large/index.html").open("wb") as large:
        large.truncate(MAX_PAGE_BYTES + 1)
    previews = RecordingPreviews()
    with pytest.raises(error, match=words):
        await call_tool(DeployPreview(), make_context(root, previews=previews), **arguments)
    assert previews.published == {}


def swap(places: list[Path], targets: list[Path], over: Event) -> None:
    """Let links and what was there take each other's place, again and again."""
    while not over.is_set():
        for place, target in zip(places, targets, strict=True):
            kept, link = place.with_name(f"{place.name}.kept"), place.with_name(f"{place.name}.link")
            link.symlink_to(target)
            place.rename(kept)
            link.rename(place)
            place.unlink()
            kept.rename(place)


@pytest.mark.covers("U20")
@pytest.mark.parametrize("rounds", [150, pytest.param(10_000, marks=pytest.mark.long)])
async def test_links_that_are_swapped_meanwhile_lead_nowhere(tmp_path: Path, rounds: int) -> None:
    """A file, a folder and the page's own folder become links to the outside while they are copied."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    page = site(root)
    (page / "style").mkdir()
    (page / "style/main.css").write_text("p{}")
    for place in (outside, outside / "img", outside / "style"):
        place.mkdir(exist_ok=True)
        for name in ("index.html", "main.css", "bee.PNG"):
            (place / name).write_bytes(SECRET)
    over = Event()
    places = [page / "index.html", page / "style", page]
    targets = [outside / "index.html", outside / "style", outside]
    swapping = Thread(target=swap, args=(places, targets, over))
    swapping.start()
    reader, whole, refused = WorkspaceReader(root), 0, 0
    try:
        for _ in range(rounds):
            try:
                _, files, _ = copy_page(reader, "site", lambda: False)
            except (ExecutionError, PermissionDenied):
                refused += 1
                continue
            whole += "style/main.css" in files
            assert SECRET not in files.values()
    finally:
        over.set()
        swapping.join()
    assert refused > 0, "the attack never met a copy"
    assert whole > 0, "no copy was whole, so the attack was not between"
