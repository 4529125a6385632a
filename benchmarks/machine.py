"""Which machine a figure was measured on, and where measurements are kept."""

import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What decides a speed. No host name: results are public."""

    cpu: str
    cores: int
    python: str

    @property
    def slug(self) -> str:
        """For file names: `amd-epyc-2-cores`."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.cpu} {self.cores} cores".lower()).strip("-")

    def in_words(self) -> str:
        """For a result's first line."""
        return f"{self.cpu}, {self.cores} cores, Python {self.python}"


def this_machine() -> Machine:
    """The one this runs on (Linux)."""
    names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return Machine(
        cpu=names[0] if names else platform.machine(), cores=os.cpu_count() or 1, python=platform.python_version()
    )


def load_in_words() -> str:
    """How busy the machine is: others' work costs cache and clock even where CPU time is what counts."""
    one, five, fifteen = os.getloadavg()
    return f"{one:.1f} / {five:.1f} / {fifteen:.1f} over 1 / 5 / 15 minutes on {os.cpu_count()} cores"


def today() -> str:
    """The date of a result, UTC."""
    return datetime.now(UTC).date().isoformat()


def save(name: str, machine: Machine, text: str, data: dict[str, Any]) -> Path:
    """Write `<date>-<machine>-<name>.md`, what a person reads, and `.json` beside it; the Markdown file's path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{today()}-{machine.slug}-{name}.md"
    path.write_text(text)
    record = {"date": today(), "machine": asdict(machine), **data}
    path.with_suffix(".json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return path
