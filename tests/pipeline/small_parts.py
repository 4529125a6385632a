"""The pipeline with task sizes under which a few hundred documents take the way of billions.

    python tests/pipeline/small_parts.py CONFIG.yaml ...

is `python pipeline/build.py CONFIG.yaml ...` with them, in the driver and in every worker of its Ray.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pipeline import documents, inputs, runtime, shuffle
from pipeline.runtime import Summary, Unit
from pipeline.stages import candidates, deduplicate, exact, near, ranks, turns

SMALL_PARTS = {
    (documents, "GROUP_DOCUMENTS"): 40,
    (shuffle, "MERGE_RECORDS"): 50,
    (candidates, "MAX_RUN_RECORDS"): 200,
    (candidates, "MAX_PAIRS"): 20,
    (candidates, "LOT_TEXT_BYTES"): 4_000,
    (near, "PART_RECORDS"): 300,
    (near, "SETTLE_DOCUMENTS"): 30,
    (deduplicate, "SAME_PART_DOCUMENTS"): 50,
    (near, "LINES_PART_BYTES"): 2_000,
    (exact, "BATCH_ROWS"): 10,
    (ranks, "RANGE_DOCUMENTS"): 30,
    (turns, "FILES_PER_LOT"): 3,
}

_execute = runtime.execute


def make_small() -> None:
    """In this process, for good."""
    for (module, name), value in SMALL_PARTS.items():
        setattr(module, name, value)
    inputs.group_inputs.__defaults__ = (1, *(inputs.group_inputs.__defaults__ or ())[1:])  # a file a unit


def execute(function: Callable[[Any], Summary], unit: Unit, url: str) -> Summary:
    """runtime.execute in a worker, which has modules of its own."""
    make_small()
    return _execute(function, unit, url)


if __name__ == "__main__":
    from pipeline import build
    from tests.pipeline import small_parts

    make_small()
    # Ray sends a function by its module's name, and this file's is __main__ here.
    runtime.execute = small_parts.execute
    sys.exit(build.main(sys.argv[1:]))
