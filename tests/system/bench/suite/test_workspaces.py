"""Workspaces of attempts: made from directories and archives, never outside; removed, or kept on failure."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest

from sessiontree import ConfigError
from sessiontree.bench import Attempt, Sample
from sessiontree.bench.suite.workspaces import (
    _NewContent,
    _TemplateCopy,
    find_template,
    make_workspace,
    make_workspace_name,
)
from sessiontree.workspace.removal import remove_tree
from tests.system.bench.suite_fixtures import solve, suite


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


def template_as(form: str, source: Path) -> Path:
    """Return a directory as a template of a form: itself, or its files in an archive next to it."""
    if form == "directory":
        return source
    template = source.with_name(f"{source.name}.{form}")
    if form == "tar.gz":
        with tarfile.open(template, "w:gz") as tar:
            tar.add(source, ".")
        return template
    with zipfile.ZipFile(template, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(each for each in source.rglob("*") if each.is_file()):
            packed.write(file, file.relative_to(source))
    return template


@pytest.mark.parametrize("form", ["directory", "tar.gz", "zip"])
def test_template_is_copied_or_unpacked(tmp_path: Path, form: str) -> None:
    """The workspace has the template's files; the template stays as it is, also if both change."""
    source = tmp_path / "template"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "notes.txt").write_text("hello")
    template = template_as(form, source)
    place = tmp_path / "workspaces" / "one"
    for _ in range(2):  # what an earlier attempt left is replaced
        make_workspace(place, template)
        assert (place / "deep" / "notes.txt").read_text() == "hello"
        (place / "deep" / "notes.txt").write_text("changed")
        (place / "more").touch()
    assert (source / "deep" / "notes.txt").read_text() == "hello"
    make_workspace(place, template)
    assert not (place / "more").exists()


def test_directory_is_copied_whole(tmp_path: Path) -> None:
    """Empty directories, a repository, times, names of any bytes; no file is shared with the copy."""
    source, place, name = tmp_path / "template", tmp_path / "one", os.fsdecode(b"a\xff")
    (source / "empty").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (source / name).write_bytes(b"\xff" * 3_000_000)
    os.utime(source / name, (1_000_000_000, 1_000_000_000))
    make_workspace(place, source)
    assert (place / "empty").is_dir()
    assert (place / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert (place / name).stat().st_mtime == 1_000_000_000
    with (place / name).open("r+b") as file:
        file.write(b"changed")
    assert (source / name).read_bytes() == b"\xff" * 3_000_000


class Vanishing(_TemplateCopy):
    """Copies a template whose entries are removed after they were seen."""

    def takes(self, path: str, name: str, status: os.stat_result) -> bool:
        (self._content.root.parent / "template" / path).unlink()
        return super().takes(path, name, status)


@pytest.mark.parametrize("is_link", [False, True])
def test_template_that_changes_meanwhile_is_refused(tmp_path: Path, is_link: bool) -> None:
    """A workspace that lacks a file would count as a failure of the sample."""
    source, place = tmp_path / "template", tmp_path / "one"
    source.mkdir()
    place.mkdir()
    if is_link:
        (source / "given").symlink_to("elsewhere")
    else:
        (source / "given").touch()
    with pytest.raises(ConfigError, match="'given' changed while it was copied"):
        Vanishing(_NewContent(place, 10, 10)).copy(str(source), str(place))


def test_template_has_a_maximum_depth(tmp_path: Path) -> None:
    """Each directory on the way is open while it is copied."""
    source = tmp_path / "template"
    source.joinpath(*["d"] * 201).mkdir(parents=True)
    with pytest.raises(ConfigError, match="below more than 200 directories"):
        make_workspace(tmp_path / "one", source)
    assert not (tmp_path / "one").exists()


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
def test_archive_never_writes_outside(tmp_path: Path, bad: tarfile.TarInfo) -> None:
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
def test_zip_archive_never_writes_outside(tmp_path: Path, name: str) -> None:
    """An entry that would is refused by its name."""
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr(name, "x")
    with pytest.raises(ConfigError, match="is outside"):
        make_workspace(tmp_path / "one", archive)


def test_link_in_a_zip_archive_is_refused(tmp_path: Path) -> None:
    """Its target could be outside."""
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        link = zipfile.ZipInfo("out")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc")
    with pytest.raises(ConfigError, match="a link"):
        make_workspace(tmp_path / "one", archive)


def test_damaged_or_missing_template_is_named(tmp_path: Path) -> None:
    """One clear error each, before anything is begun."""
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b nothing")
    (tmp_path / "note.txt").touch()
    with pytest.raises(ConfigError, match=r"cut\.tar\.gz' can't be unpacked"):
        make_workspace(tmp_path / "one", tmp_path / "cut.tar.gz")
    for name, said in (("none", "does not exist"), ("note.txt", "is not a directory")):
        with pytest.raises(ConfigError, match=f"sample 's': the template .*{said}"):
            find_template(suite(folder=tmp_path), Sample("s", files=name))


def damaged_archive(path: Path, form: str) -> Path:
    """Write an archive that ends its reader with an error of its own kind."""
    if form == "encrypted":
        with zipfile.ZipFile(path.with_suffix(".zip"), "w") as packed:
            packed.writestr("first", "first")
            packed.writestr("x", "x")
        data = bytearray(path.with_suffix(".zip").read_bytes())
        data[data.rindex(b"PK\x01\x02") + 8] |= 1
        data[data.rindex(b"PK\x03\x04") + 6] |= 1
        path.with_suffix(".zip").write_bytes(data)
        return path.with_suffix(".zip")
    found = path.with_suffix(f".tar.{form}")
    with tarfile.open(found, f"w:{form}") as tar:  # type: ignore[call-overload]
        tar.addfile(entry("first"))
        big = entry("big")
        big.size = 200_000
        tar.addfile(big, io.BytesIO(os.urandom(big.size // 2).hex().encode()))
    data = bytearray(found.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = b"\xff" * 100
    found.write_bytes(data)
    return found


@pytest.mark.parametrize("form", ["gz", "bz2", "xz", "encrypted"])
def test_damage_inside_an_archive_is_one_error(tmp_path: Path, form: str) -> None:
    """Whatever its reader raises; nothing that is half unpacked stays."""
    archive = damaged_archive(tmp_path / "bad", form)
    with pytest.raises(ConfigError, match=r"workspace 'one': the template '.*bad.* can't be unpacked"):
        make_workspace(tmp_path / "one", archive)
    assert not (tmp_path / "one").exists()


def test_pipe_in_a_template_is_refused(tmp_path: Path) -> None:
    """Reading it would wait forever."""
    (tmp_path / "template").mkdir()
    os.mkfifo(tmp_path / "template" / "pipe")
    with pytest.raises(ConfigError, match="'pipe' is neither a file, a directory nor a link"):
        make_workspace(tmp_path / "one", tmp_path / "template")
    pipe = entry("pipe")
    pipe.type = tarfile.FIFOTYPE
    with pytest.raises(ConfigError, match="'pipe' is neither"):
        make_workspace(tmp_path / "one", packed_tar(tmp_path / "pipe.tar.gz", pipe))
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("form", ["directory", "archive"])
def test_modes_are_those_of_a_workspace(tmp_path: Path, form: str) -> None:
    """The owner may write, programs stay programs, and no file has the rights of another user."""
    source = tmp_path / "template"
    (source / "deep").mkdir(parents=True)
    for name, mode in (("deep/program", 0o4555), ("deep/note", 0o444)):
        (source / name).touch()
        (source / name).chmod(mode)
    (source / "deep").chmod(0o2555)
    source.chmod(0o555)
    template = source
    if form == "archive":
        template = tmp_path / "template.tar.gz"
        with tarfile.open(template, "w:gz") as tar:
            tar.add(source, ".")
    place = tmp_path / "one"
    make_workspace(place, template)
    modes = {
        name: stat.S_IMODE((place / name).stat().st_mode) for name in ("deep", "deep/program", "deep/note")
    }
    assert modes == {"deep": 0o755, "deep/program": 0o755, "deep/note": 0o644}
    assert stat.S_IMODE(place.stat().st_mode) & 0o700 == 0o700


@pytest.mark.parametrize("form", ["directory", "archive"])
@pytest.mark.parametrize(
    "links",
    [
        {"out": "/etc/passwd"},
        {"out": "../outside"},
        {"a": "..", "b": "a/outside"},
        {"d/s": "..", "x": "d/s/d/../../template/note"},
        {"circle": "circle"},
    ],
    ids=["absolute", "above", "two", "by name", "circle"],
)
def test_links_that_lead_outside_are_refused(tmp_path: Path, form: str, links: dict[str, str]) -> None:
    """In a directory as in an archive."""
    source = tmp_path / "template"
    source.mkdir()
    (source / "note").touch()
    (tmp_path / "outside").touch()
    for name, target in links.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).symlink_to(target)
    template = source
    if form == "archive":
        template = packed_tar(tmp_path / "t.tar.gz", *(entry(name, to) for name, to in links.items()))
    with pytest.raises(ConfigError, match=r"is a link to .*, which is outside"):
        make_workspace(tmp_path / "workspaces" / "one", template)
    assert not (tmp_path / "workspaces" / "one").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Neither a file nor another link, in any order of an archive's entries."""
    (tmp_path / "outside").mkdir()
    for bad in (entry("a/planted"), entry("a/planted", "note")):
        archive = packed_tar(tmp_path / "t.tar.gz", entry("a", "../outside"), bad)
        with pytest.raises(ConfigError, match="can't be unpacked"):
            make_workspace(tmp_path / "one", archive)
    assert list((tmp_path / "outside").iterdir()) == []


def test_links_that_stay_inside_stay_links(tmp_path: Path) -> None:
    """And hard links of an archive are files."""
    hard = entry("hard")
    hard.type, hard.linkname = tarfile.LNKTYPE, "deep/note"
    packed = packed_tar(tmp_path / "t.tar.gz", entry("link", "deep/note"), entry("deep/note"), hard)
    make_workspace(tmp_path / "one", packed)
    make_workspace(tmp_path / "two", tmp_path / "one")
    for place in (tmp_path / "one", tmp_path / "two"):
        assert (place / "link").readlink() == Path("deep/note")
        assert (place / "link").read_text() == (place / "hard").read_text() == "deep/note"


@pytest.mark.parametrize("form", ["directory", "tar.gz", "zip"])
def test_template_has_a_maximum_size(tmp_path: Path, form: str) -> None:
    """A small archive can hold very large files; what was written is removed."""
    source = tmp_path / "template"
    source.mkdir()
    for name in "ab":
        (source / name).write_bytes(bytes(600))
    template = template_as(form, source)
    make_workspace(tmp_path / "one", template, max_bytes=20_000, max_entries=3)
    with pytest.raises(ConfigError, match="more than 1,199 bytes"):
        make_workspace(tmp_path / "one", template, max_bytes=1_199)
    with pytest.raises(ConfigError, match="more than 1 entries"):
        make_workspace(tmp_path / "one", template, max_entries=1)
    assert not (tmp_path / "one").exists()


def test_template_does_not_hold_its_own_run(tmp_path: Path) -> None:
    """Each copy would hold the earlier ones, and itself."""
    with pytest.raises(ConfigError, match="the run's directory is inside it"):
        make_workspace(tmp_path / "runs" / "one", tmp_path)


@pytest.mark.parametrize("files", ["/etc/ssl", "../..", "link"])
def test_samples_files_are_in_the_suites_folder(tmp_path: Path, files: str) -> None:
    """Rows of a downloaded file name nothing else of this machine."""
    folder = tmp_path / "suite"
    (folder / "given").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    assert find_template(suite(folder=folder), Sample("s", files="given")) == folder / "given"
    with pytest.raises(ConfigError, match=r"sample 's': the template .* is not inside the suite's folder"):
        find_template(suite(folder=folder), Sample("s", files=files))


def test_directories_that_may_not_be_written_are_removed(tmp_path: Path) -> None:
    """Tools may leave such."""
    place = tmp_path / "one"
    (place / "locked" / "deep").mkdir(parents=True)
    (place / "locked" / "deep" / "file").touch()
    (place / "locked").chmod(0o500)
    remove_tree(place)
    assert not place.exists()


def test_directories_of_any_depth_are_removed(tmp_path: Path) -> None:
    """Deeper than Python's recursion, a path's length and the limit of open files allow; links stay links."""
    place = tmp_path / "one"
    place.mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    folder = os.open(place, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("a", dir_fd=folder)
        os.symlink(tmp_path / "kept", "link", dir_fd=folder)
        inner = os.open("a", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        remove_tree(place)
        assert not place.exists()
        assert (tmp_path / "kept" / "file").exists()
    finally:  # pytest can't remove it either
        subprocess.run(["rm", "-rf", str(place)], check=True)


def test_what_can_not_be_removed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run goes on; links and files in place of a workspace are removed themselves."""
    remove_tree(tmp_path / ("x" * 300))
    assert "can't be removed" in caplog.text
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "link")
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("sample_id", ["a/b", "..", "x" * 200, "дім 家", "-rf"])
def test_names_are_single_safe_directories(sample_id: str) -> None:
    """Whatever the sample is called."""
    name = make_workspace_name(sample_id, 1, 2, "p 17")
    assert "/" not in name
    assert len(name.encode()) < 120
    assert name not in {".", ".."}
    assert name != make_workspace_name(sample_id, 1, 2, "p 18")


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


def with_header(path: Path, kind: bytes, size: int, form: str) -> Path:
    """Write an archive whose first entry has an extended header of a size; it is small when packed."""
    header = tarfile.TarInfo("long")
    header.type, header.size = kind, size
    body = b"a" * size
    if kind in {tarfile.XHDTYPE, tarfile.XGLTYPE}:
        body = f"{size} comment=".encode().ljust(size - 1, b"a") + b"\n"
    with tarfile.open(path, cast("Any", f"w:{form}")) as tar:
        tar.addfile(header, io.BytesIO(body))
        tar.addfile(tarfile.TarInfo("file"))
    return path


@pytest.mark.parametrize("form", ["", "gz", "bz2", "xz"])
@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]
)
def test_headers_of_an_archive_are_bounded(tmp_path: Path, kind: bytes, form: str) -> None:
    """What an archive unpacks to counts, a long name or an attribute too; nothing of it is left."""
    template = with_header(tmp_path / f"template.tar.{form or 'gz'}", kind, 2_000_000, form)
    with pytest.raises(ConfigError, match=r"a header of it has 2,000,\d+ bytes; at most 65,536 are read"):
        make_workspace(tmp_path / "workspace", template)
    assert not (tmp_path / "workspace").exists()


def test_ordinary_long_names_are_unpacked(tmp_path: Path) -> None:
    """By either kind of header, with links between files, from each form."""
    name = "/".join(["n" * 60] * 4)
    for number, (form, kind) in enumerate(
        (form, kind) for form in ("", "gz", "xz") for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    ):
        template = tmp_path / f"template{number}.tar"
        with tarfile.open(template, cast("Any", f"w:{form}"), format=kind) as tar:
            entry_ = tarfile.TarInfo(name)
            entry_.size = 3
            tar.addfile(entry_, io.BytesIO(b"abc"))
            link = tarfile.TarInfo("same")
            link.type, link.linkname = tarfile.LNKTYPE, name
            tar.addfile(link)
        make_workspace(tmp_path / "workspace", template)
        assert (tmp_path / "workspace" / name).read_text() == "abc"
        assert (tmp_path / "workspace" / "same").read_text() == "abc"
