"""Tokens of the global batch, labelled or not, per second of the step: what the whole cluster gets through."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float:
    return facts.tokens_in_batch / facts.seconds
