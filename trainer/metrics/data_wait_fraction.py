"""Share of the step that rank 0 waited for data: the loader's bill."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float:
    return facts.data_wait_s / facts.seconds
