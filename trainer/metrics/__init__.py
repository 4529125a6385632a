"""Figures derived from a step's facts, each a function StepFacts -> number (None: nothing to tell) in its own file.

Adding one: a new file here with a function `measure`, and its line in METRICS. The name is the key in metrics.jsonl.
"""

from collections.abc import Callable

from trainer.facts import StepFacts
from trainer.metrics import (
    data_wait_fraction,
    fetched_gb_per_s,
    gpu_utilisation,
    memory_peak_bytes,
    mfu,
    tokens_per_s,
    validation_loss,
    validation_perplexity,
)

METRICS: dict[str, Callable[[StepFacts], float | None]] = {
    "data_wait_fraction": data_wait_fraction.measure,
    "fetched_gb_per_s": fetched_gb_per_s.measure,
    "gpu_utilisation": gpu_utilisation.measure,
    "memory_peak_bytes": memory_peak_bytes.measure,
    "mfu": mfu.measure,
    "tokens_per_s": tokens_per_s.measure,
    "validation_loss": validation_loss.measure,
    "validation_perplexity": validation_perplexity.measure,
}
