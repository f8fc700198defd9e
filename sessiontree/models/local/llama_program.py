"""llama.cpp's server for one file of weights; the program ends with the process that started it.

Run by its path, closed: it reads one line of JSON from its standard input, writes one line of JSON on its
standard output, serves HTTP on a free port of the loopback device, and ends as soon as its input closes or
its parent changes. Nothing imports it. Not here: starting and watching it (``local_server``).
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
from typing import Any, Final

MAX_WAITING: Final = 64
"""Connections that are served at a time; the number of slots limits how many questions are answered."""
GLANCE_S: Final = 1.0
"""Seconds between checks of the parent; a closed input is noticed at once."""
_INPUT, _OUTPUT = 0, 1


def _build_parameters(llama: Any, order: dict[str, Any]) -> Any:
    """Return the server's parameters: one address, one key, bounded memory and threads, and nothing else."""
    parameters = llama.CommonParams()
    parameters.model.path = order["weights"]
    parameters.model_alias = {order["name"]}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [order["key"]]
    parameters.offline = True
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.verbosity = 0
    parameters.n_parallel = order["parallel"]
    parameters.n_ctx = order["context_tokens"] * order["parallel"]  # it is divided among the slots
    parameters.n_predict = order["reply_tokens"]
    parameters.sampling.penalty_repeat = order["repeat_penalty"]
    parameters.cache_type_k = parameters.cache_type_v = llama.ggml_type.GGML_TYPE_Q8_0  # half the memory
    parameters.cache_ram_mib = 0
    parameters.n_ctx_checkpoints = 0
    parameters.n_threads_http = MAX_WAITING
    for processors in (parameters.cpuparams, parameters.cpuparams_batch):
        processors.n_threads = order["threads"]
        processors.poll = 0  # never spin while idle
    return parameters


def main() -> None:
    """Serve until the input closes."""
    order = json.loads(sys.stdin.buffer.readline())
    owner = os.getppid()
    # The library prints to the standard output; on the copy only the one line of the answer is written.
    answers = os.dup(_OUTPUT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), _OUTPUT)  # output that the library prints is not an answer
    try:
        llama = importlib.import_module("xllamacpp")
        server = llama.Server(_build_parameters(llama, order))
        answer = {"address": server.listening_address}
    except Exception as error:  # noqa: BLE001 - whatever it is, the owner says it to a person
        answer = {"failed": f"{type(error).__name__}: {error}"}
    os.write(answers, json.dumps(answer).encode() + b"\n")
    # Also the parent is watched, because a process that the parent forked may hold the other end of the input
    # open.
    while "address" in answer and os.getppid() == owner:
        if select.select([_INPUT], [], [], GLANCE_S)[0]:
            break
    os._exit(0)  # do not wait for the library's threads: no one reads their remaining output


if __name__ == "__main__":
    main()
