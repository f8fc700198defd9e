"""Both resolvers against the kernel's own answer (REL-P37)."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.workspace.resolver import (
    MAX_LINKS,
    RESOLVE_BENEATH,
    Resolver,
    RootDirectory,
    WorkspacePath,
    choose_resolver,
    openat2,
    read_descriptor_path,
    resolve_by_openat2,
    resolve_by_walk,
    split_path,
)

RESOLVERS = pytest.mark.parametrize("resolve", [resolve_by_openat2, resolve_by_walk], ids=["openat2", "walk"])
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.sampled_from(["a", "b", "c", "..", "..", ".", ""]), max_size=4).map("/".join)
START = st.sampled_from(["", "", "/root/", "/root/", "/root-evil/", "/outside/"])


@dataclass(frozen=True, slots=True)
class Planted:
    """One thing to make in a tree: a directory, a file, or a link with its target."""

    parent: tuple[str, ...]
    name: str
    kind: str
    start: str
    """Empty, or where an absolute target begins: ``/root/`` stands for the root's own path."""
    target: str


Scene: TypeAlias = tuple[list[Planted], str]
"""A tree and a path to look up in it."""


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Draw trees whose links and look-ups mostly go through what is in the tree already."""
    tree: list[Planted] = []
    known = [""]

    def way() -> str:
        path = draw(st.sampled_from(known)) + draw(STEPS)
        return path.lstrip("/") or "."

    for _ in range(draw(st.integers(1, 8))):
        parent = tuple(draw(st.lists(NAMES, max_size=2)))
        kind = draw(st.sampled_from(["directory", "file", "link", "link"]))
        planted = Planted(parent, draw(NAMES), kind, draw(START), way())
        tree.append(planted)
        known.append("/".join((*parent, planted.name, "")))
    return tree, way()


def plant(top: Path, tree: list[Planted], *, relative: bool) -> Path:
    """Make a tree below ``top/root`` and something to escape to alongside it.

    Args:
        top: An empty directory.
        tree: What to make, in order; what finds its place taken is left out.
        relative: Write absolute targets beneath the root as relative ones that mean the same.
    """
    root = top / "root"
    for name in ("root", "root-evil", "outside"):
        (top / name).mkdir()
    (top / "outside" / "a").write_bytes(b"")
    (top / "root-evil" / "a").write_bytes(b"")
    for planted in tree:
        folder = root
        for name in planted.parent:
            if not folder.joinpath(name).is_symlink() and not folder.joinpath(name).is_file():
                folder = folder / name
                folder.mkdir(exist_ok=True)
        path = folder / planted.name
        if os.path.lexists(path):
            continue
        if planted.kind == "directory":
            path.mkdir()
        elif planted.kind == "file":
            path.write_bytes(b"")
        else:
            target = planted.target.lstrip("/") if planted.start else planted.target
            if planted.start == "/root/" and relative:
                target = "../" * len(folder.relative_to(root).parts) + target
            elif planted.start or target.startswith("/"):
                target = f"{top}{planted.start or '/nowhere/'}{target}"
            path.symlink_to(target)
    return root


def kernel_answer(root: Path, path: str) -> str | int:
    """Return the kernel's answer beneath a root: the found object's path there, or an error number."""
    anchor = RootDirectory(root)
    try:
        fd = openat2(anchor.fd, path, os.O_PATH, RESOLVE_BENEATH)
    except OSError as error:
        if error.errno == errno.EAGAIN:  # a rename somewhere on this machine while ``..`` was stepped
            return kernel_answer(root, path)
        return error.errno or 0
    try:
        return os.path.relpath(read_descriptor_path(fd), read_descriptor_path(anchor.fd))
    finally:
        os.close(fd)


def answer_of(resolve: Resolver, root: Path, path: str) -> str | int:
    """Return a resolver's answer in the same words, having looked at what the place names."""
    try:
        place = resolve(RootDirectory(root), split_path(path))
    except OSError as error:
        return error.errno or 0
    with place:
        try:
            os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
        except OSError as error:
            return error.errno or 0
        return place.path


def agrees_with_kernel(resolve: Resolver, tree: list[Planted], path: str) -> None:
    """REL-P37: beneath the root or refused, and in every case what the kernel says of the same tree.

    The kernel refuses absolute links altogether, so it is asked about a twin of the tree in which absolute
    links beneath the root are spelt as relative ones.
    """
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        root = plant(Path(one), tree, relative=False)
        twin = plant(Path(other), tree, relative=True)
        answer = answer_of(resolve, root, path)
        assert answer == kernel_answer(twin, path)
        if isinstance(answer, str):
            real = Path(os.path.realpath(root / path))
            assert real == Path(os.path.realpath(root / answer))
            assert real.is_relative_to(os.path.realpath(root))


@pytest.mark.covers("REL-P37")
@pytest.mark.slow
@RESOLVERS
def test_resolver_agrees_with_the_kernel_on_random_trees(resolve: Resolver) -> None:
    """REL-P37: every path resolves beneath the root or is refused, exactly as the kernel would."""

    @given(scenes())
    def run(scene: Scene) -> None:
        agrees_with_kernel(resolve, *scene)

    run()


@RESOLVERS
@pytest.mark.parametrize("path", ["b/a", "b/a/../c", "b/../b/a/.", "b/c/b/a"])
def test_resolver_agrees_after_an_absolute_link(resolve: Resolver, path: str) -> None:
    """REL-P37: a link back to the root forgets the way that led to it, so that ``..`` counts from there."""
    tree = [
        Planted(("b",), "a", "link", "/root/", "c/../b/c/.."),
        Planted(("b",), "c", "link", "/root/", "b/.."),
        Planted((), "c", "directory", "", ""),
    ]
    agrees_with_kernel(resolve, tree, path)


def resolve_lexically(anchor: RootDirectory, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
    """Planted bug: takes ``..`` from the text, before links are followed."""
    text = os.path.normpath("/".join(names))
    return resolve_by_walk(anchor, split_path(text), follow_last=follow_last)


def resolve_by_prefix(anchor: RootDirectory, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
    """Planted bug: compares text, so that ``root-evil`` counts as beneath ``root``."""
    whole = os.path.realpath(anchor.real_path.joinpath(*names))
    if not whole.startswith(str(anchor.real_path)):
        raise OSError(errno.EXDEV, "outside")
    parent, name = os.path.split(whole)
    fd = os.open(parent, os.O_PATH | os.O_DIRECTORY)
    return WorkspacePath(fd, os.path.relpath(parent, anchor.real_path), (name,) if follow_last else ())


def resolve_without_absolute_links(
    anchor: RootDirectory, names: list[str], *, follow_last: bool = True
) -> WorkspacePath:
    """Planted bug: leaves absolute links to the kernel, which refuses those beneath the root as well."""
    os.close(openat2(anchor.fd, "/".join(names), os.O_PATH, RESOLVE_BENEATH))
    return resolve_by_walk(anchor, names, follow_last=follow_last)


@pytest.mark.covers("REL-P37")
@pytest.mark.parametrize(
    ("bug", "tree", "path"),
    [
        (
            resolve_lexically,
            [Planted(("b",), "c", "directory", "", ""), Planted((), "a", "link", "", "b/c")],
            "a/../c",
        ),
        (resolve_by_prefix, [Planted((), "a", "link", "/root-evil/", "a")], "a"),
        (
            resolve_without_absolute_links,
            [Planted((), "b", "file", "", ""), Planted((), "a", "link", "/root/", "b")],
            "a",
        ),
    ],
)
def test_property_fails_on_a_planted_bug(bug: Resolver, tree: list[Planted], path: str) -> None:
    """REL-P37 can fail: each wrong resolver disagrees with the kernel on a tree made for it, ours do not."""
    agrees_with_kernel(resolve_by_openat2, tree, path)
    agrees_with_kernel(resolve_by_walk, tree, path)
    with pytest.raises(AssertionError):
        agrees_with_kernel(bug, tree, path)


@pytest.mark.parametrize("bug", [resolve_lexically, resolve_by_prefix])
def test_random_trees_alone_find_a_planted_bug(bug: Resolver) -> None:
    """REL-P37 can fail: the strategy itself reaches trees on which a wrong resolver is wrong."""

    @settings(max_examples=1000, database=None, phases=[Phase.generate], derandomize=True)
    @given(scenes())
    def run(scene: Scene) -> None:
        agrees_with_kernel(bug, *scene)

    with pytest.raises(AssertionError):
        run()


@RESOLVERS
def test_chain_of_links_ends_after_forty(tmp_path: Path, resolve: Resolver) -> None:
    """Forty links are followed and one more is not, as in the kernel."""
    (tmp_path / "l0").write_bytes(b"")
    for number in range(1, MAX_LINKS + 2):
        (tmp_path / f"l{number}").symlink_to(f"l{number - 1}")
    assert answer_of(resolve, tmp_path, "l40") == kernel_answer(tmp_path, "l40") == "l0"
    assert answer_of(resolve, tmp_path, "l41") == kernel_answer(tmp_path, "l41") == errno.ELOOP


@RESOLVERS
def test_last_link_is_kept_when_not_followed(tmp_path: Path, resolve: Resolver) -> None:
    """A link in the last place is the place itself when asked so; one on the way is followed."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "way").symlink_to("sub")
    (tmp_path / "sub" / "last").symlink_to("/elsewhere")
    with resolve(RootDirectory(tmp_path), ["way", "last"], follow_last=False) as place:
        assert place.path == "sub/last"


@RESOLVERS
def test_missing_parents_are_kept_as_names(tmp_path: Path, resolve: Resolver) -> None:
    """What does not exist yet stays in the place as names below the deepest directory that does."""
    (tmp_path / "sub").mkdir()
    with resolve(RootDirectory(tmp_path), ["sub", "new", "newer", "file"]) as place:
        assert (place.directory, place.names) == ("sub", ("new", "newer", "file"))


@RESOLVERS
@pytest.mark.parametrize("path", ["new/../file", "new/..", "new/."])
def test_way_through_a_missing_directory_is_no_place(tmp_path: Path, resolve: Resolver, path: str) -> None:
    """``..`` and ``.`` below something missing lead nowhere."""
    with pytest.raises(FileNotFoundError):
        resolve(RootDirectory(tmp_path), split_path(path))


@pytest.mark.slow
@RESOLVERS
def test_no_descriptor_is_left_open(
    tmp_path: Path, resolve: Resolver, count_descriptors: Callable[[], int]
) -> None:
    """Found, missing, refused and looping paths each give back all they opened but the place itself."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "in").symlink_to(tmp_path / "sub")
    anchor = RootDirectory(tmp_path)
    before = count_descriptors()
    for path in ["sub", "sub/x", "no/x", "loop/x", "loop", "out", "..", "in/../in", "sub/..", "sub/x/.."]:
        try:
            resolve(anchor, split_path(path)).__exit__(None, None, None)
        except OSError:
            continue
    assert count_descriptors() == before


@RESOLVERS
def test_path_deeper_than_the_kernel_takes_is_still_resolved(tmp_path: Path, resolve: Resolver) -> None:
    """A path beyond the kernel's 4096 bytes is stepped; many ``..`` cost no descriptor each."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"")
    assert answer_of(resolve, tmp_path, "sub/../" * 900 + "sub/file") == "sub/file"


def test_best_resolver_is_the_kernels_where_there_is_one(tmp_path: Path) -> None:
    """The choice is by trying: with the call and procfs it is ``openat2``, else the walk."""
    anchor = RootDirectory(tmp_path)
    try:
        os.close(openat2(anchor.fd, ".", os.O_PATH, RESOLVE_BENEATH))
    except OSError:
        assert choose_resolver() is resolve_by_walk
    else:
        assert choose_resolver() is resolve_by_openat2
