"""Names as people see them: exactly first, then the only entry that looks the same, by its real name."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.values.file_names import fold_name, name_note
from sessiontree.protected import OwnPlaces
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter
from sessiontree.workspace.resolver import Resolver, resolve_by_openat2, resolve_by_walk

NFC, NFD = "r\u00e9sum\u00e9.txt", "re\u0301sume\u0301.txt"
PAIRS = [
    (NFC, NFD),
    (NFD, NFC),
    ("3.15 PM.png", "3.15\u202fPM.png"),
    ("3.15\u202fPM.png", "3.15 PM.png"),
    ("a b", "a\u00a0b"),
    ("a\u3000b", "a\u2003b"),
    ("it's.txt", "it\u2019s.txt"),
    ("it\u2019s.txt", "it\u2018s.txt"),
    ('"q"', "\u201cq\u201d"),
    ("\u1112\u1161\u11ab", "\ud55c"),
    ("\u0439", "\u0438\u0306"),
]


@pytest.fixture(params=[resolve_by_openat2, resolve_by_walk])
def resolver(request: pytest.FixtureRequest) -> Resolver:
    """Each way in which paths are resolved."""
    found: Resolver = request.param
    return found


@pytest.mark.parametrize(("asked", "real"), PAIRS)
def test_entry_is_found_by_its_look(tmp_path: Path, resolver: Resolver, asked: str, real: str) -> None:
    """As a file, as a directory on the way, as a directory that is listed; results have the real name."""
    reader = WorkspaceReader(tmp_path, resolver=resolver)
    writer = WorkspaceWriter(tmp_path, resolver=resolver)
    (tmp_path / real).mkdir()
    (tmp_path / real / real).write_text("old")
    assert reader.stat(f"{asked}/{asked}").path == f"{real}/{real}"
    assert reader.stat(f"./{asked}/../{asked}/").path == real
    with reader.open(str(tmp_path / asked / asked)) as file:
        assert file.read() == b"old"
    assert [entry.path for entry in reader.list(f"{asked}/")] == [f"{real}/{real}"]
    assert [entry.path for entry in reader.walk(asked)] == [f"{real}/{real}"]
    written = writer.write(f"{asked}/{asked}", b"new")
    assert (written.path, written.created) == (f"{real}/{real}", False)
    assert writer.write(f"{asked}/more/x", b"x").path == f"{real}/more/x"
    assert sorted(path.name for path in (tmp_path / real).iterdir()) == sorted([real, "more"])
    writer.remove(f"{asked}/{asked}")
    assert not (tmp_path / real / real).exists()
    assert fold_name(asked) == fold_name(real)
    assert ascii(real) in name_note(f"{asked}/x", f"{real}/x")
    assert name_note(f"{real}/x", f"{real}/x") == ""


@pytest.mark.parametrize(("asked", "real"), PAIRS)
def test_exact_name_comes_first(tmp_path: Path, resolver: Resolver, asked: str, real: str) -> None:
    """Two entries of the same look are two entries."""
    reader = WorkspaceReader(tmp_path, resolver=resolver)
    (tmp_path / asked).write_text("asked")
    (tmp_path / real).write_text("real")
    for name in (asked, real):
        assert reader.stat(name).path == name
    assert WorkspaceWriter(tmp_path, resolver=resolver).write(asked, b"new").path == asked
    assert (tmp_path / real).read_text() == "real"


def test_several_that_look_the_same_are_named(tmp_path: Path, resolver: Resolver) -> None:
    """None is chosen, and no further one is made."""
    names = ["a\u00a0b", "a\u2003b"]
    for name in names:
        (tmp_path / name).write_text("")
    for call in (
        lambda: WorkspaceReader(tmp_path, resolver=resolver).stat("a b"),
        lambda: WorkspaceWriter(tmp_path, resolver=resolver).write("a b", b""),
        lambda: WorkspaceWriter(tmp_path, resolver=resolver).remove("a b"),
    ):
        with pytest.raises(ExecutionError, match=r"several look like it: 'a\\xa0b', 'a\\u2003b'"):
            call()
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_case_and_other_letters_are_not_folded(tmp_path: Path, resolver: Resolver) -> None:
    """Only what nobody sees counts as the same."""
    (tmp_path / "Readme file").write_text("")
    (tmp_path / "\uff21 b").write_text("")
    reader = WorkspaceReader(tmp_path, resolver=resolver)
    for name in ("readme file", "A b"):
        with pytest.raises(ExecutionError, match="no such file"):
            reader.stat(name)
    assert WorkspaceWriter(tmp_path, resolver=resolver).write("readme file", b"").created


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("readme.md", "'README.md'"),
        ("src/mian.py", "'main.py'"),
        ("quite/other.py", None),
        ("scr/x.py", "'src'"),
    ],
)
def test_error_names_what_is_near(tmp_path: Path, resolver: Resolver, asked: str, near: str | None) -> None:
    """In the directory where the first missing name should be."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("")
    (tmp_path / "README.md").write_text("")
    reader = WorkspaceReader(tmp_path, hidden=(tmp_path / "readme.mdx",), resolver=resolver)
    (tmp_path / "readme.mdx").write_text("")
    with pytest.raises(ExecutionError) as caught:
        reader.open(asked)
    said = str(caught.value)
    assert "no such file or directory" in said
    assert (f"; near names there: {near}" in said) if near else ("near" not in said)
    assert "mdx" not in said


def test_hidden_place_stays_hidden_by_its_look(tmp_path: Path, resolver: Resolver) -> None:
    """It is neither found nor named."""
    (tmp_path / NFD).mkdir()
    (tmp_path / NFD / "key").write_text("")
    reader = WorkspaceReader(tmp_path, hidden=(tmp_path / NFD,), resolver=resolver)
    for path in (NFC, f"{NFC}/key"):
        with pytest.raises(ExecutionError, match=r"no such file or directory$"):
            reader.stat(path)


def test_look_leads_no_further_than_names(tmp_path: Path, resolver: Resolver) -> None:
    """A link that is found by its look is followed beneath the root alone."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "out").write_text("secret")
    (root / "it\u2019s").symlink_to(tmp_path / "out")
    reader = WorkspaceReader(root, resolver=resolver)
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        reader.open("it's")
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        WorkspaceWriter(root, resolver=resolver).write("it's", b"")


def test_protected_place_is_protected_by_its_look(tmp_path: Path, resolver: Resolver) -> None:
    """A place that decides which code runs is judged by the name that is opened, whatever was typed."""
    (tmp_path / NFD).mkdir()
    place = tmp_path / NFD / "run me.py"
    place.write_text("")
    own = OwnPlaces(modules=(str(place),))
    writer = WorkspaceWriter(tmp_path, own=own, resolver=resolver)
    asked = f"{NFC}/run\u00a0me.py"
    places = writer.find_places(asked)
    assert places
    assert places == writer.find_places(f"{NFD}/run me.py")
    with pytest.raises(PermissionDenied, match="protected"):
        writer.write(asked, b"x")
    assert writer.allow_places(places).write(asked, b"x").path == f"{NFD}/run me.py"


def test_long_path_is_taken_as_it_is(tmp_path: Path, resolver: Resolver) -> None:
    """A path of many names is not looked up name by name."""
    reader = WorkspaceReader(tmp_path, resolver=resolver)
    with pytest.raises(ExecutionError, match="no such file"):
        reader.stat("\u00e9/" * 10_000)


def test_folded_form_is_one_for_all_that_look_the_same() -> None:
    """Folding twice changes nothing."""
    for letter in map(chr, range(0x20, 0xD800)):
        once = fold_name(letter)
        assert fold_name(once) == once
        assert fold_name(unicodedata.normalize("NFD", letter)) == once
