"""10**9 bytes of shards a second that rank 0 fetched from storage in the step; nothing where all were local."""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float | None:
    return facts.fetched_bytes / facts.seconds / 1e9 if facts.fetched_bytes else None
