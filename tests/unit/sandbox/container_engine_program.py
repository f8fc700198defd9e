"""A container engine for tests: podman's words, with processes of this machine and directories for images.

It is copied to where its images are (``images/NAME/``). A container is a directory with the image's files,
the processes that have its name among their variables, and a mounted workspace as working directory. Programs
that are run in one are processes of the one that started it, as with every engine. It hides no variable of
its own from a container, so what reaches a command was given to the engine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

HOME = Path(sys.argv[0]).resolve().parent
CONTAINERS = HOME / "containers"
NAME = "STUB_CONTAINER"
PLACE = "STUB_PLACE"
FLAGS = frozenset({"--interactive", "--rm", "--all", "--quiet", "--no-trunc", "--force", "--volumes"})


def refused(text: str) -> int:
    """Say why nothing was done, as an engine does."""
    sys.stderr.write(f"Error: {text}\n")
    return 125


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options by name and the rest; an option that podman 4.3 has and this has not is refused."""
    options: dict[str, list[str]] = {}
    while words and words[0].startswith("-") and words[0] != "-":
        word, *words = words
        if word == "--":
            break
        name, has_value, value = word.partition("=")
        if name in FLAGS:
            options[name] = []
        elif has_value:
            options.setdefault(name, []).append(value)
        else:
            options.setdefault(name, []).append(words.pop(0))
    return options, words


def info_of(name: str) -> dict[str, Any] | None:
    """Return what is known of a container."""
    try:
        info: dict[str, Any] = json.loads((CONTAINERS / name / "info.json").read_text())
    except OSError:
        return None
    return info


def made(options: dict[str, list[str]], image: str) -> Path | None:
    """Make a container; None if the image is not known."""
    if not (HOME / "images" / image).is_dir():
        return None
    place = CONTAINERS / options["--name"][0]
    shutil.copytree(HOME / "images" / image, place / "root")
    keys = ("--label", "--volume", "--workdir", "--env", "--network", "--user", "--memory", "--pids-limit")
    (place / "info.json").write_text(json.dumps({key: options.get(key, []) for key in keys}))
    return place


def directory(name: str, info: dict[str, Any], path: str) -> Path:
    """Return where a path of a container is on this machine."""
    for volume in info["--volume"]:
        source, target, _ = volume.split(":")
        if Path(path).is_relative_to(target):
            return Path(source) / Path(path).relative_to(target)
    return CONTAINERS / name / "root" / path.lstrip("/")


def variables(name: str, info: dict[str, Any], more: list[str]) -> dict[str, str]:
    """Return the variables of a process in a container."""
    given = dict(each.split("=", 1) for each in [*info["--env"], *more])
    return {**os.environ, **given, NAME: name, PLACE: str(CONTAINERS / name)}


def end(name: str) -> None:
    """Kill all processes of a container, and those that they start meanwhile."""
    mark, found = f"{PLACE}={CONTAINERS / name}".encode(), True
    while found:
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_its = mark in (entry / "environ").read_bytes().split(b"\0")
                if is_its and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
            except OSError:
                continue


def run(options: dict[str, list[str]], words: list[str]) -> int:
    """Start a container, and wait for its first process."""
    image, *arguments = words
    place = made(options, image)
    if place is None:
        return refused(f"{image}: image not known")
    name, info = options["--name"][0], info_of(options["--name"][0])
    assert info is not None
    start = directory(name, info, info["--workdir"][0])
    start.mkdir(parents=True, exist_ok=True)
    first = subprocess.Popen(
        [options["--entrypoint"][0], *arguments],
        cwd=start,
        env=variables(name, info, []),
        start_new_session=True,
    )
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(place)  # a socket's path must be short
        server.bind("socket")
        server.listen()
        os.chdir("/")
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        code = first.wait()
    end(name)
    shutil.rmtree(place, ignore_errors=True)
    return code


def serve(server: socket.socket) -> None:
    """Run programs in the container for those who ask: they are this process's, not the asking one's."""
    while True:
        try:
            asking, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(asking,), daemon=True).start()


def answer(asking: socket.socket) -> None:
    """Run one program, and say how it ended."""
    with asking:
        asked, (output, errors), _, _ = socket.recv_fds(asking, 1 << 20, 2)
        while not asked.endswith(b"\n"):
            asked += asking.recv(1 << 20)
        words, start, environment = json.loads(asked)
        code = subprocess.call(
            words,
            cwd=start,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        os.close(output)
        os.close(errors)
        asking.sendall(b"%d\n" % code)


def execute(options: dict[str, list[str]], words: list[str]) -> int:
    """Have a program run in a container, and wait for its end."""
    name, *arguments = words
    info = info_of(name)
    if info is None:
        return refused(f"no container with name or ID {name!r} found: no such container")
    start = directory(name, info, (options.get("--workdir") or info["--workdir"])[0])
    if not start.is_dir():
        return refused(f"chdir to {start}: no such file or directory")
    asked = json.dumps([arguments, str(start), variables(name, info, options.get("--env", []))])
    os.chdir(CONTAINERS / name)
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect("socket")
            socket.send_fds(asking, [asked.encode() + b"\n"], [1, 2])
            told = asking.recv(100)
        except OSError as error:
            return refused(f"container {name!r} is not running: {error}")
    return abs(int(told)) if told else refused(f"container {name!r} has ended")


def listed(options: dict[str, list[str]]) -> int:
    """List containers by their labels."""
    wanted = {each.removeprefix("label=") for each in options.get("--filter", [])}
    for place in sorted(CONTAINERS.glob("*")):
        info = info_of(place.name)
        if info is not None and wanted <= set(info["--label"]):
            sys.stdout.write(f"{place.name}\n")
    return 0


def copied(source: str, target: str) -> int:
    """Copy a directory out of a container, or a tar archive into one or out of it (``-``)."""
    name, colon, path = (target if source == "-" else source).partition(":")
    info = info_of(name)
    if not colon or info is None:
        return refused(f"no container with name or ID {name!r} found: no such container")
    place = directory(name, info, path)
    if source == "-":
        place.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            archive.extractall(place, filter="data")
        return 0
    if not place.is_dir():
        return refused(f"{path!r} could not be found on container {name}: no such file or directory")
    if target == "-":
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
            for each in sorted(place.iterdir()):
                archive.add(each, each.name)
        return 0
    shutil.copytree(place, target, dirs_exist_ok=True, symlinks=True)
    return 0


def main(command: str, *words: str) -> int:
    """Do what an engine's command says."""
    if (HOME / "broken").exists():
        return refused("can't connect to the engine's service")
    CONTAINERS.mkdir(exist_ok=True)
    with (HOME / "asked").open("a") as asked:
        asked.write(json.dumps([command, *words]) + "\n")
    options, rest = parsed(list(words))
    match command:
        case "run":
            return run(options, rest)
        case "create":
            place = made({"--workdir": ["/"], **options}, rest[0])
            return refused(f"{rest[0]}: image not known") if place is None else 0
        case "exec":
            return execute(options, rest)
        case "cp":
            return copied(*rest)
        case "ps":
            return listed(options)
        case "rm":
            for name in rest:
                end(name)
                shutil.rmtree(CONTAINERS / name, ignore_errors=True)
            return 0
    return refused(f"unknown command {command!r}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
