"""Ranks of real runs at a hundredth of their start-up cost: forked from a process that has imported everything.

`python -m tests.trainer.forked_ranks` reads one request a line on standard input, forks that many ranks, which run the
real command on gloo, and answers with their exit codes (negative: the signal that killed them):

    {"call": "trainer.train:main", "arguments": [...], "ranks": 2, "port": 41234, "log": "/tmp/log",
     "kill": {"point": "rename", "nth": 1, "rank": 0}}
    [-9, 1]

torchrun itself is tried elsewhere; here only the ranks matter. One rank may be told to SIGKILL itself at a point of a
save, or, by {"stop": {"call": "trainer.train:train_step", "nth": 3, "rank": 1}}, to SIGTERM itself in a call:
kill_points.py.
"""

import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


class ForkedRanks:
    """The other side: starts the process, sends requests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.forked_ranks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).resolve().parents[2],
        )

    def run(
        self,
        arguments: list[str],
        log: Path,
        *,
        ranks: int = 1,
        kill: dict[str, Any] | None = None,
        stop: dict[str, Any] | None = None,
        call: str = "trainer.train:main",
    ) -> tuple[list[int], list[str]]:
        """Exit codes by rank, and what all of them printed. call: module:function, which gets `arguments`."""
        log.unlink(missing_ok=True)
        request = {"arguments": arguments, "log": str(log), "ranks": ranks, "kill": kill, "stop": stop, "call": call}
        request["port"] = _free_port()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline()), log.read_text(encoding="utf-8").splitlines()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve() -> None:
    import transformers

    import loader.kernel  # noqa: F401 - imported once, for all ranks to come
    import trainer.train  # noqa: F401

    # What `from_config` of a Llama imports on its first call.
    transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8)
    )
    for line in sys.stdin:
        request = json.loads(line)
        pids = [_fork(request, rank) for rank in range(request["ranks"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        sys.stdout.write(json.dumps(codes) + "\n")
        sys.stdout.flush()


def _fork(request: dict[str, Any], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)  # its own group: a signal to it reaches its loader workers and nobody else
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(request["ranks"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(request["port"]),
    )
    code = 1
    try:
        from tests.trainer.kill_points import arm, ask_to_stop

        kill, stop = request["kill"], request["stop"]
        if kill is not None and kill["rank"] == rank:
            arm(kill["point"], kill["nth"], kill.get("delay_s", 0.0))
        if stop is not None and stop["rank"] == rank:
            ask_to_stop(stop["call"], stop["nth"])
        module, _, function = request["call"].partition(":")
        code = getattr(importlib.import_module(module), function)(request["arguments"])
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
