"""Where a process can be told to kill itself: just before it does something to the file system, or inside staging.
Also where it can be asked to stop: at the start of a call.

Python tells audit hooks of every file it is about to open, rename or remove. A point is the first such event whose path
fits, so the code under test knows nothing of it, and what dies is a real process by a real SIGKILL.
"""

import importlib
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

# (event, what its path must fit), in the order of a save. The run's folder of copies must be called remote.
POINTS: dict[str, tuple[str, str]] = {
    "write": ("open", r"checkpoints/step-\d+\.tmp/__\d+_0\.distcp$"),
    "metadata": ("open", r"checkpoints/step-\d+\.tmp/\.metadata\.tmp$"),
    "list": ("open", r"checkpoints/step-\d+\.tmp/files\.json$"),
    "rename": ("os.rename", r"checkpoints/step-\d+$"),
    "rotation": ("shutil.rmtree", r"checkpoints/step-\d+\.removed\.tmp$"),
    "upload": ("os.rename", r"remote/step-\d+/__\d+_0\.distcp$"),
    "pointer": ("os.rename", r"remote/latest\.json$"),
}
_CHANGES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")


def arm(point: str, nth: int, delay_s: float = 0.0) -> None:
    """Kill this process when it comes to `point` for the `nth` time: "staging", a name of POINTS, "change", or "step".

    delay_s: after the beginning of a "step".
    """
    if point == "staging":
        _kill_in_staging(nth)
    elif point == "step":
        _in_call("trainer.train:train_step", nth, lambda: threading.Timer(delay_s, _kill).start())
    elif point == "change":
        sys.addaudithook(_hook(nth, _changes))
    else:
        event, pattern = POINTS[point]
        fits = re.compile(pattern).search
        sys.addaudithook(_hook(nth, lambda name, where: name == event and bool(fits(_path(name, where)))))


def ask_to_stop(call: str, nth: int) -> None:
    """SIGTERM to this process and its children when `call`, module:function, is made for the `nth` time."""
    _in_call(call, nth, lambda: os.killpg(0, signal.SIGTERM))


def _in_call(call: str, nth: int, act: Callable[[], None]) -> None:
    module_name, _, name = call.partition(":")
    module = importlib.import_module(module_name)
    original, calls = getattr(module, name), itertools.count(1)

    def act_and_go_on(*arguments: Any, **options: Any) -> Any:
        if next(calls) == nth:
            act()
        return original(*arguments, **options)

    setattr(module, name, act_and_go_on)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_in_staging(nth: int) -> None:
    """Die with the state copied and the copy not yet given back."""
    from torch.distributed.checkpoint.staging import DefaultStager

    original, calls = DefaultStager.stage, itertools.count(1)

    def stage_and_die(*arguments: Any, **options: Any) -> Any:
        staged = original(*arguments, **options)
        if next(calls) == nth:
            _kill()
        return staged

    DefaultStager.stage = stage_and_die  # type: ignore[method-assign]


def _hook(nth: int, fits: Callable[[str, tuple[Any, ...]], bool]) -> Callable[[str, tuple[Any, ...]], None]:
    matches = itertools.count(1)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if (event != "open" or _writes(arguments)) and fits(event, arguments) and next(matches) == nth:
            _kill()

    return hook


def _changes(event: str, _: tuple[Any, ...]) -> bool:
    return event in _CHANGES


def _path(event: str, arguments: tuple[Any, ...]) -> str:
    return str(arguments[1 if event == "os.rename" else 0]) if arguments else ""


def _writes(arguments: tuple[Any, ...]) -> bool:
    """Whether an `open` event (path, mode, flags) makes or changes a file."""
    return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
