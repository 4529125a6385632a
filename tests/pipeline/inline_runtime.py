"""A runtime without Ray: the same units, the same durable results, in this process, in any order that is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.runtime import Summary, Unit, execute, find_results, result_url


@dataclass(frozen=True, kw_only=True)
class InlineRuntime:
    """Runs units one after another, the last first where `backwards`."""

    build_url: str
    backwards: bool = False

    def run(
        self,
        stage: str,
        function: Callable[[Any], Summary],
        units: Sequence[Unit],
        check: Callable[[Unit, Summary], None] | None = None,
    ) -> list[Summary]:
        done = find_results(self.build_url, stage, units)
        for unit in reversed(units) if self.backwards else units:
            if unit.key not in done:
                done[unit.key] = execute(function, unit, result_url(self.build_url, stage, unit.key))
            if check is not None:
                check(unit, done[unit.key])
        return [done[unit.key] for unit in units]
