"""exp(validation loss): among how many equally likely tokens the model hesitates; only on steps that validate."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float | None:
    return None if facts.validation is None else facts.validation.perplexity
