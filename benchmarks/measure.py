"""CPU time by stage, of the process that asks. Standard library only: the Python of a peer imports this too."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

KIBIBYTE = 1024  # Linux reports the peak of resident memory in it


def cpu_seconds() -> float:
    """User and system time of this process, all its threads, and every child that has ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def peak_bytes() -> int:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE


def reset_peak() -> None:
    """Let peak_bytes of /proc begin anew from what is held now: Linux, see proc(5), clear_refs."""
    Path("/proc/self/clear_refs").write_text("5")


def held_bytes(field: str) -> int:
    """VmRSS, what this process holds, or VmHWM, the most it held since reset_peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * KIBIBYTE


@dataclass
class Stopwatch:
    """CPU seconds by stage; a stage entered again adds up."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what runs inside under `name`."""
        start = cpu_seconds()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + cpu_seconds() - start
