"""A version that continues another, and the command that tells what was dropped."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from manifests.manifest import Dataset, load

Build = Callable[..., subprocess.CompletedProcess[str]]
ConfigFile = Callable[..., Path]


def ask(repository: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)


def write(folder: Path, rows: list[tuple[str, list[str]]]) -> None:
    folder.mkdir()
    lines = [json.dumps({"id": id_, "text": " ".join(words)}) + "\n" for id_, words in rows]
    (folder / "part.jsonl").write_text("".join(lines), encoding="utf-8")


def built(result: subprocess.CompletedProcess[str]) -> Dataset:
    assert result.returncode == 0, result.stderr
    return load(result.stdout.strip())


def test_new_documents_are_compared_with_the_base_without_its_text(
    config_file: ConfigFile, run_build: Build, repository: Path, tmp_path: Path
) -> None:
    generator = random.Random(0)
    old = [[f"слово{generator.randrange(5000)}" for _ in range(100)] for _ in range(60)]
    write(tmp_path / "old", [(f"o{i:02d}", words) for i, words in enumerate(old)])
    fresh = [[f"ново{generator.randrange(5000)}" for _ in range(100)] for _ in range(30)]
    new = [(f"equal {i}", old[i]) for i in range(20)]
    new += [(f"near {i}", [*old[i], "ещё"]) for i in range(20, 40)]
    new += [(f"fresh {i}", words) for i, words in enumerate(fresh)]
    write(tmp_path / "new", new)
    root = tmp_path / "data"
    changes = {"validation": {"fraction": 0.1}, "example": {"seq_len": 64}, "tokenizer": {"train": {"vocab_size": 400}}}

    def config(version: str, folder: str, **more: object) -> Path:
        sources = [{"name": "a", "paths": [str(tmp_path / folder)]}]
        return config_file(root, version=version, sources=sources, **changes, **more)

    first = built(run_build(config("v1", "old")))
    shutil.rmtree(root / ".build")
    shutil.rmtree(tmp_path / "old")
    second = built(run_build(config("v2", "new", base="v1.json")))
    assert second.manifest.parent is not None
    assert (second.manifest.parent.version, second.manifest.parent.digest) == ("v1", first.manifest.digest)
    for split, entry in first.manifest.splits.items():
        assert second.manifest.splits[split].shards[: entry.num_shards] == entry.shards
    funnel = {row.stage: row.num_documents for row in second.manifest.funnel}
    assert funnel == {"read": 130, "exact_duplicate": 20, "near_duplicate": 20, "kept": 90}
    # 40 of the 70 that this build read, whatever the base holds beside them.
    assert "lost 57.1 % of its documents" in (root / "reports" / "v2.html").read_text(encoding="utf-8")
    assert second.manifest.sources["a"].documents_kept == 90
    verified = ask(repository, "manifests", "verify", second.url)
    assert verified.returncode == 0, verified.stdout

    told = ask(repository, "pipeline", "duplicates", str(root), "--version", "v2", "--json").stdout.splitlines()
    lines = {row["document"]: row for row in map(json.loads, told)}
    assert len(lines) == 40
    assert lines["equal 3"] == {"document": "equal 3", "keeper": "o03", "kind": "exact", "similarity": 1.0}
    assert (lines["near 25"]["keeper"], lines["near 25"]["kind"]) == ("o25", "near")
    one = ask(repository, "pipeline", "duplicates", str(root), "--version", "v2", "--document", "near 25")
    assert "dropped a: near 25\nkept    a: o25    near, similarity" in one.stdout
    assert "(not at hand)" in one.stdout
    assert (
        ask(repository, "pipeline", "duplicates", str(root), "--version", "v2", "--document", "fresh 1").returncode == 1
    )
    assert ask(repository, "pipeline", "duplicates", str(root), "--version", "v9").returncode == 2

    refused = run_build(config("v3", "new", base="v7.json"))
    assert refused.returncode == 2
    assert f"base: there is no manifest at {root}/manifests/v7.json" in refused.stderr
