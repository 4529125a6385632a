"""field.md's cases 10 to 13 through reading and deduplication, each in a process of its own.

    python benchmarks/dedup_cases.py FOLDER

does the one whose config lies in FOLDER, and prints what came of it as JSON: benchmarks/dedup.py calls it so. All tasks
run in this one process, so its peak memory is above that of any worker.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests' helpers are no part of the installed packages

from pipeline.config import parse
from pipeline.runtime import WORKER_ENVIRONMENT
from pipeline.stages.deduplicate import deduplicate
from pipeline.stages.read import find_all_inputs, read
from tests.pipeline.dedup_corpus import Document, values_for
from tests.pipeline.inline_runtime import InlineRuntime

CONFIG = "config.json"

FORM = """Заявка в службу поддержки
Имя сотрудника: Иван Иванов
Отдел: бухгалтерия и финансы
Телефон: 123-45-67 доб. 12
Версия программы: 8.3.22.1704 платформа
Операционная система: Windows 10 Pro
Описание проблемы:
{problem}

С уважением,
Иван Иванов
ООО Ромашка, отдел бухгалтерии
Это письмо конфиденциально и предназначено только адресату; если вы получили его по ошибке, удалите его."""


def hard_cases() -> Iterator[tuple[str, list[Document]]]:
    """Short texts, tickets on one form, the similarity chain, one text a million times."""
    generator = random.Random(1)
    letters = "абвгдежзиклмнопрстуфхцчшщэюя"
    vocabulary = ["".join(generator.choices(letters, k=generator.randint(3, 9))) for _ in range(20_000)]

    def some(number: int) -> str:
        return " ".join(generator.choices(vocabulary, k=number))

    replies = [("t", f"reply {i}", generator.choice(["Спасибо", "OK", "Решено"])) for i in range(10_000)]
    distinct = sorted({some(3) for _ in range(10_100)})[:10_000]
    yield "20,000 short texts: 3 replies 10,000 times, 10,000 distinct", replies + [("t", t, t) for t in distinct]
    tickets = [("t", f"{i:05d}", FORM.format(problem=some(generator.randint(4, 15)))) for i in range(5_000)]
    yield "5,000 tickets on one form, 5,000 problems", tickets
    chains: list[Document] = []
    for chain in range(100):
        words = some(300).split()
        for link in range(26):
            chains.append(("t", f"{chain:03d}-{link:02d}", " ".join(words)))
            for _ in range(5):
                words[generator.randrange(300)] = generator.choice(vocabulary)
    yield "100 chains of 26, neighbours near J = 0.85, ends below 0.1", chains
    same = "Один и тот же текст, который пришёл миллион раз подряд."
    yield "1,000,000 identical documents", [("t", f"{i:07d}", same) for i in range(1_000_000)]
    page = some(120)
    yield (
        "100,000 revisions of one page, one band key for all",
        [("t", f"{i:06d}", f"{page} {some(1)}{i}") for i in range(100_000)],
    )


def in_words() -> Iterator[str]:
    """A table."""
    yield "| case | documents | exact dropped | near dropped | kept | pairs measured | CPU s | peak MB |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, documents in hard_cases():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, CONFIG).write_text(json.dumps(values_for(Path(folder), documents)))
            command = [sys.executable, str(Path(__file__).resolve()), folder]
            environment = {**os.environ, **WORKER_ENVIRONMENT}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout)
        yield (
            f"| {name} | {len(documents):,} | {found['exact']:,} | {found['near']:,} |"
            f" {len(documents) - found['exact'] - found['near']:,} | {found['pairs']:,} | {found['cpu_s']:.1f} |"
            f" {found['peak_mb']:,.0f} |"
        )
    yield "\nPeak memory is of one process that runs every task, some 200 MB of imports and kernels included."


def main(folder: Path) -> None:
    config = parse(json.loads((folder / CONFIG).read_text()))
    start = time.process_time()
    runtime = InlineRuntime(build_url=f"{config.output}/.build")
    documents = read(runtime, config, find_all_inputs(config))
    dropped = deduplicate(runtime, config.output, config.version, documents.files, documents.lines, config.dedup)
    num = {kind: sum(n for _, k, n, _ in dropped.counts if k == kind) for kind in ("exact", "near")}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.process_time() - start
    sys.stdout.write(json.dumps({**num, "pairs": dropped.num_pairs, "cpu_s": seconds, "peak_mb": peak}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
