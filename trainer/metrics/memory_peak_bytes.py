"""Most bytes rank 0's GPU allocator has held since the process began; nothing on CPU."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float | None:
    return facts.memory_peak_bytes
