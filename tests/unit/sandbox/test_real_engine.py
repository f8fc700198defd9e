"""The stub's words are podman's: the same commands in a container of Debian's podman, where it works."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from sessiontree import SandboxSpec
from sessiontree.sandbox.containers.container import Container, fill_workspace, remove_containers
from sessiontree.sandbox.containers.container_command import ContainerCommand

IMAGE = "localhost/sessiontree-test:1"
LABELS = {"sessiontree": "test-of-a-real-engine"}
PROGRAMS = "sh cat env echo id ls rm sleep touch setsid kill"


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Podman's program, with an image of busybox; skipped where it starts no container."""
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None or busybox is None:
        pytest.skip("podman or busybox is not installed")
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    with tarfile.open(archive, "w") as packed:
        for folder in ("bin", "tmp", "proc", "dev", "sys", "app"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            packed.addfile(made)
        packed.add(busybox, "bin/busybox")
        for name in PROGRAMS.split():
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            packed.addfile(link)
        task = tarfile.TarInfo("app/task")
        task.size, task.mode = 8, 0o644
        packed.addfile(task, io.BytesIO(b"the task"))
    trial = [program, "run", "--rm", "--network=none", "--ulimit=nofile=64:64", "--ulimit=nproc=64:64", IMAGE]
    for words in ([program, "import", "--quiet", str(archive), IMAGE], [*trial, "/bin/busybox", "true"]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"podman starts no container here: {done.stderr[-200:]}")
    return program


@pytest.mark.long
async def test_podman_does_what_the_stub_does(
    podman: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, exit codes, variables, time-outs, what is left running, and the end of all of it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    spec = SandboxSpec(image=IMAGE, workdir="/app", fill=True)
    await fill_workspace(spec, tmp_path)
    assert (tmp_path / "task").read_text() == "the task"
    container = Container(spec, "sessiontree-test", LABELS, [(str(tmp_path), spec.workdir, "rw")])
    await container.start()
    try:

        def command(cleanup_s: float = 5.0) -> ContainerCommand:
            return ContainerCommand(
                podman,
                "sessiontree-test",
                memory_bytes=spec.memory_bytes,
                output_bytes=1_000_000,
                cleanup_s=lambda: cleanup_s,
                keep_bytes=10_000,
                on_output=None,
            )

        first = await command().run("cat task; echo made >file; env; exit 3", ".", {"OWN": "a b"}, 60)
        assert (first.exit_code, first.head[:8]) == (3, "the task")
        assert "OWN=a b\n" in first.head
        assert "sk-secret" not in first.head
        assert (tmp_path / "file").read_text() == "made\n"
        left = await command().run("sleep 1000 & echo $! >pid", ".", {}, 60)
        assert left.exit_code == 0
        late = await command(0.3).run("trap '' TERM; setsid sleep 1000 & echo $! >other; wait", ".", {}, 3)
        assert (late.reason, late.signal) == ("timeout", 9)
        assert (await command().run("kill -0 $(cat pid)", ".", {}, 60)).exit_code == 0
        assert (await command().run("kill -0 $(cat other)", ".", {}, 60)).exit_code != 0
        assert "eth" not in (await command().run("cat /proc/net/dev", ".", {}, 60)).head
    finally:
        await container.close()
    assert await remove_containers(spec, LABELS) == 0
