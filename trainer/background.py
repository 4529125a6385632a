"""Work beside the training: one piece at a time, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


class Background:
    """At most one piece of work in flight; how it ended is kept until the next one starts.

    Its threads are daemons: a process that fails must end, not wait for a write that waits for a lost rank.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        self._failure: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        assert not self.busy, f"{self._name} is at work"
        self._failure = None
        self._thread = Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # torch's CheckpointException is no Exception
            self._failure = error

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What ended the last piece of work; None while it runs and where it was done."""
        return self._failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether nothing is in flight, after at most `timeout_s` seconds."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.busy
