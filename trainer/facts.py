"""What is known about one finished step; metrics are made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ValidationResult:
    """Over every validation example: mean loss in nats a labelled token, its exponential, and the tokens counted."""

    loss: float
    perplexity: float
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """One step, over all ranks; times are rank 0's.

    loss: nats a labelled token, before the update. grad_norm: before clipping. num_tokens: labelled tokens.
    tokens_in_batch: global_batch * seq_len. seconds: data wait included, validation and checkpoints not.
    applied: False where loss or norm was not finite and the weights stayed. validation: where it was this step's turn.

    slowest_data_wait_s: of the rank that waited longest. forward_s, backward_s, update_s: rank 0's (phases.py).

    model_flops: of forward and backward over all ranks, recomputation not counted. peak_flops: FLOP/s of all devices
    together. memory_peak_bytes: this rank's device, since the process began. fetched_bytes: from storage, by this rank,
    in this step. gpu_utilisation: this rank's. None where it is not known (hardware.py).
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    num_tokens: int
    tokens_in_batch: int
    examples_consumed: int
    batch_digest: str
    seconds: float
    data_wait_s: float
    applied: bool
    num_skipped: int
    validation: ValidationResult | None = None
    model_flops: float = 0.0
    peak_flops: float | None = None
    slowest_data_wait_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0
    memory_peak_bytes: int | None = None
    fetched_bytes: int = 0
    gpu_utilisation: float | None = None
