"""Mean loss over the validation split, nats a labelled token; only on steps that validate."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float | None:
    return None if facts.validation is None else facts.validation.loss
