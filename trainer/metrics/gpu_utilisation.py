"""Share of time in which some kernel ran on rank 0's GPU, as NVML samples it; nothing on CPU."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float | None:
    return facts.gpu_utilisation
