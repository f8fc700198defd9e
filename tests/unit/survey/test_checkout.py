"""Checkout: which files are surveyed; what Git would ignore is left out, and nothing odd stops the walk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiontree import ExecutionError
from sessiontree.survey.source.checkout import decode_text, get_top_folder, read_bytes, walk
from sessiontree.workspace import WorkspaceReader
from tests.example_fixtures import examples

MakeTree = Callable[[Mapping[str, str | bytes]], WorkspaceReader]


def paths(reader: WorkspaceReader, folder: str | None = None) -> list[str]:
    """Return the paths that are surveyed."""
    return [file.path for file in walk(reader, folder).files]


def test_walk_leaves_out_what_is_no_source(make_tree: MakeTree) -> None:
    """Version control, caches, environments, installed packages, links and the report itself."""
    reader = make_tree(
        {
            "a.py": "x = 1\n",
            "src/b.py": "",
            "SURVEY.md": "old",
            ".git/config": "",
            "node_modules/x/index.js": "",
            "__pycache__/a.pyc": "",
            "env/pyvenv.cfg": "",
            "env/lib/site.py": "",
            "store/CACHEDIR.TAG": "Signature",
            "store/entry": "",
            "thing.egg-info/PKG-INFO": "",
            "docs/SURVEY.md": "not the report",
        }
    )
    assert paths(reader) == ["a.py", "docs/SURVEY.md", "src/b.py"]
    assert walk(reader).ignored == 7
    assert paths(reader, "src") == ["src/b.py"]
    assert paths(reader, ".") == ["a.py"]
    assert [file.path for file in walk(reader, leave_out={"src/b.py"}).files] == ["a.py", "docs/SURVEY.md"]
    assert [get_top_folder(path) for path in ("a.py", "src/b.py")] == [".", "src"]


def test_walk_follows_no_link(make_tree: MakeTree, tmp_path: Path) -> None:
    """A loop of links, a link outside and a broken one are counted and not entered."""
    reader = make_tree({"a/b/c.py": ""})
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "gone").symlink_to("nowhere")
    found = walk(reader)
    assert ([file.path for file in found.files], found.ignored) == (["a/b/c.py"], 3)


def test_walk_names_what_it_cannot_survey(make_tree: MakeTree, tmp_path: Path) -> None:
    """Pipes and names that are not UTF-8 are problems; the walk goes on."""
    reader = make_tree({"a.py": ""})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"odd\xff.py")).write_text("")
    found = walk(reader)
    assert [file.path for file in found.files] == ["a.py"]
    assert [(one.path, one.text) for one in found.problems] == [
        ("odd\\udcff.py", "its name is not UTF-8"),
        ("pipe", "not a regular file"),
    ]


def test_walk_stops_when_asked(make_tree: MakeTree) -> None:
    """Nobody waits for a walk that was abandoned."""
    with pytest.raises(ExecutionError, match="the call was stopped"):
        walk(make_tree({"a.py": ""}), stop=lambda: True)


NAMES = st.sampled_from(["a", "b", "ab", "a.py", "b.log", "c d", "#x", "!y", "build", "é"])
PATTERN_PARTS = st.sampled_from(
    ["a", "b", "*", "**", "?", "*.py", "*.log", "build", "[ab]", "[!a]", "c d", "\\#x", "é"]
)
PATTERNS = st.builds(
    lambda negated, anchored, parts, is_directory: (
        f"{'!' if negated else ''}{'/' if anchored else ''}{'/'.join(parts)}{'/' if is_directory else ''}"
    ),
    st.booleans(),
    st.booleans(),
    st.lists(PATTERN_PARTS, min_size=1, max_size=3),
    st.booleans(),
)


@pytest.fixture(scope="module")
def git_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty repository that each example fills and empties."""
    root = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=6, unique=True),
    st.lists(PATTERNS, max_size=4),
    st.lists(PATTERNS, max_size=3),
)
@example(["a/b", "a/a.py"], ["a/*", "!a/b"], [])
@example(["a/b/ab"], ["/a/b/"], ["!*"])
@example(["build/a", "a/build/b"], ["build/"], ["!build/"])
@example(["a/a"], ["*", "!a"], [])
@example(["a/a/a", "a/b"], ["a/**/"], ["*/"])
@example(["a/b", "a/c d"], ["a/**", "!a/b"], [])
def test_walk_ignores_what_git_ignores(
    git_place: Path, files: list[str], top: list[str], inner: list[str]
) -> None:
    """For any files and patterns, in the root and in a folder, Git's own word decides."""
    kept = []
    for name in files:
        path = git_place / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
            kept.append(name)
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            continue
    (git_place / ".gitignore").write_text("".join(f"{line}\n" for line in top))
    folder = git_place / "a"
    if folder.is_dir():
        (folder / ".gitignore").write_text("".join(f"{line}\n" for line in inner))
        kept.append("a/.gitignore")
    kept.append(".gitignore")
    try:
        asked = subprocess.run(
            ["git", "-C", git_place, "-c", "core.excludesFile=/dev/null", "check-ignore", "-z", "--stdin"],
            input="\0".join(kept).encode() + b"\0",
            capture_output=True,
            check=False,
        )
        ignored = set(filter(None, asked.stdout.decode().split("\0")))
        assert set(paths(WorkspaceReader(git_place, hidden=()))) == set(kept) - ignored
    finally:
        subprocess.run(
            [
                "find",
                git_place,
                "-mindepth",
                "1",
                "-not",
                "-path",
                "*/.git/*",
                "-not",
                "-name",
                ".git",
                "-delete",
            ],
            check=True,
        )


def test_read_bytes_reads_the_head_of_a_huge_line(tmp_path: Path) -> None:
    """A file of 1 GB in one line costs its first bytes."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1_000_000_000)
    data, total = read_bytes(WorkspaceReader(tmp_path, hidden=()), "huge", 1_000)
    assert (len(data), total) == (1_000, 1_000_000_000)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\r\nb\rc\n", ("a\nb\nc\n", "")),
        ("\ufeffé\n".encode(), ("é\n", "")),
        ("é\n".encode("utf-16"), ("é\n", "")),
        (b"caf\xe9 au lait\n", ("caf\ufffd au lait\n", "byte 3 is not UTF-8")),
        ("abé".encode()[:-1], ("ab\ufffd", "")),
        (b"\0binary", None),
        (b"\xff\xfe\x00", None),
        (b"\xfa\xfb\xfc\xfd" * 9, None),
    ],
)
def test_text_of_takes_any_bytes(data: bytes, expected: tuple[str, str] | None) -> None:
    """UTF-8 and UTF-16 are text, single wrong bytes are a problem, anything else is binary."""
    assert decode_text(data) == expected
