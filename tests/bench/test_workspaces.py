"""Workspaces of attempts: made from directories and archives, never outside; removed, or kept on failure."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from sessiontree import ConfigError
from sessiontree.bench import Attempt, Sample
from sessiontree.bench.workspaces import make_workspace, remove_workspace, template_of, workspace_name
from tests.bench.suite_fixtures import solve, suite


def packed_tar(path: Path, *entries: tarfile.TarInfo) -> Path:
    """Write an archive of entries; files hold their own name."""
    with tarfile.open(path, "w:gz") as tar:
        for entry in entries:
            data = entry.name.encode() if entry.isfile() else b""
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def entry(name: str, link: str = "") -> tarfile.TarInfo:
    """Return an entry: a file, or a link."""
    found = tarfile.TarInfo(name)
    if link:
        found.type, found.linkname = tarfile.SYMTYPE, link
    return found


@pytest.mark.parametrize("form", ["directory", "tar.gz", "zip"])
def test_a_template_is_copied_or_unpacked(tmp_path: Path, form: str) -> None:
    """The workspace has the template's files; the template stays as it is, also if both change."""
    source = tmp_path / "template"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "notes.txt").write_text("hello")
    template = source
    if form == "tar.gz":
        template = tmp_path / "template.tar.gz"
        with tarfile.open(template, "w:gz") as tar:
            tar.add(source, ".")
    elif form == "zip":
        template = tmp_path / "template.zip"
        with zipfile.ZipFile(template, "w") as packed:
            packed.write(source / "deep" / "notes.txt", "deep/notes.txt")
    place = tmp_path / "workspaces" / "one"
    for _ in range(2):  # what an earlier attempt left is replaced
        make_workspace(place, template)
        assert (place / "deep" / "notes.txt").read_text() == "hello"
        (place / "deep" / "notes.txt").write_text("changed")
        (place / "more").touch()
    assert (source / "deep" / "notes.txt").read_text() == "hello"
    make_workspace(place, template)
    assert not (place / "more").exists()


@pytest.mark.parametrize(
    "bad",
    [
        entry("/etc/planted"),
        entry("../planted"),
        entry("deep/../../planted"),
        entry("out", "/etc/passwd"),
        entry("out", "../.."),
    ],
    ids=["absolute", "above", "above below", "absolute link", "link above"],
)
def test_an_archive_never_writes_outside(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    """An entry that would is refused, or stays inside; nothing appears elsewhere."""
    archive = packed_tar(tmp_path / "bad.tar.gz", entry("good"), bad)
    place = tmp_path / "workspaces" / "one"
    try:
        make_workspace(place, archive)
    except ConfigError as error:
        assert "can't be unpacked" in str(error)
        assert not place.exists()
    assert not (tmp_path / "planted").exists()
    assert not (tmp_path / "workspaces" / "planted").exists()
    assert not Path("/etc/planted").exists()


@pytest.mark.parametrize("name", ["/planted", "../planted", "a/../../planted", "..\\planted"])
def test_a_zip_archive_never_writes_outside(tmp_path: Path, name: str) -> None:
    """An entry that would is refused by its name."""
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr(name, "x")
    with pytest.raises(ConfigError, match="is outside"):
        make_workspace(tmp_path / "one", archive)


def test_a_link_in_a_zip_archive_is_refused(tmp_path: Path) -> None:
    """Its target could be outside."""
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        link = zipfile.ZipInfo("out")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc")
    with pytest.raises(ConfigError, match="a link"):
        make_workspace(tmp_path / "one", archive)


def test_a_damaged_or_missing_template_is_named(tmp_path: Path) -> None:
    """One clear error each, before anything is begun."""
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b nothing")
    (tmp_path / "note.txt").touch()
    with pytest.raises(ConfigError, match=r"cut\.tar\.gz' can't be unpacked"):
        make_workspace(tmp_path / "one", tmp_path / "cut.tar.gz")
    for name, said in (("none", "does not exist"), ("note.txt", "is not a directory")):
        with pytest.raises(ConfigError, match=f"sample 's': the template .*{said}"):
            template_of(suite(folder=tmp_path), Sample("s", files=name))


def test_directories_that_may_not_be_written_are_removed(tmp_path: Path) -> None:
    """Tools may leave such."""
    place = tmp_path / "one"
    (place / "locked" / "deep").mkdir(parents=True)
    (place / "locked" / "deep" / "file").touch()
    (place / "locked").chmod(0o500)
    remove_workspace(place)
    assert not place.exists()


@pytest.mark.parametrize("sample_id", ["a/b", "..", "x" * 200, "дім 家", "-rf"])
def test_names_are_single_safe_directories(sample_id: str) -> None:
    """Whatever the sample is called."""
    name = workspace_name(sample_id, 1, 2, "p 17")
    assert "/" not in name
    assert len(name.encode()) < 120
    assert name not in {".", ".."}
    assert name != workspace_name(sample_id, 1, 2, "p 18")


@pytest.mark.parametrize(("keep", "left"), [("failed", ["s1"]), ("all", ["s0", "s1"]), ("none", [])])
async def test_workspaces_are_kept_as_asked(tmp_path: Path, keep: str, left: list[str]) -> None:
    """With what the attempt wrote there."""
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "given").write_text("given")

    async def work(attempt: Attempt[str]) -> str:
        assert (attempt.workspace / "given").read_text() == "given"
        (attempt.workspace / "made").write_text(attempt.sample.id)
        return await solve(attempt)

    def passes(attempt: Attempt[str]) -> bool:
        return attempt.sample.id == "s0" and (attempt.workspace / "made").exists()

    found = suite(2, solver=work, scorers=passes, folder=tmp_path, workspace="template")
    await found.run(tmp_path / "run", backend="local", keep=keep)
    kept = sorted((tmp_path / "run" / "workspaces").iterdir())
    assert [(each / "made").read_text() for each in kept] == left
