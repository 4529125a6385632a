"""Model FLOPs utilisation: arithmetic the model needs, over what the GPUs could do; only where their peak is known.

Source: Chowdhery et al. 2022 (PaLM), appendix B, with attention counted as the causal half (plan/shape.py).
"""

from trainer.facts import StepFacts


def measure(facts: StepFacts) -> float | None:
    return None if not facts.peak_flops else facts.model_flops / facts.seconds / facts.peak_flops
