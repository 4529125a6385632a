"""Which architectures can be trained here, found out before the first step, since nothing later would show it.

Tests take the tried ones from files and back. Any other one is asked, on its real weights: does the loss of one
document depend on the one before it in the row? Recurrent layers, and attention that ignores the 4-D mask, carry
documents into each other in silence.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from manifests.yaml_config import ConfigError
from trainer.model import first_line, loss_sum_of

TRIED = ("llama", "mistral", "qwen2", "qwen3")


def check_documents_stay_apart(model: PreTrainedModel, *, seq_len: int, device: torch.device) -> None:
    """Collective. One pass forward and back over two documents in a row, of which only the second one has labels: no
    gradient may reach the embeddings of the first. Zero is exact at any precision.

    model: with values, sharded or not, made to return its loss (model.use_cross_entropy). Raises ConfigError where one
    does, or where the pass fails. Families in TRIED are not asked.
    """
    family = model.config.model_type
    if family in TRIED:
        return
    embedded: list[torch.Tensor] = []
    embedding: nn.Module = model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda _module, _inputs, output: _keep(output, embedded))
    was_training = model.training
    model.eval()  # type: ignore[no-untyped-call]  # transformers annotates a part
    try:
        loss_sum_of(model, _row(seq_len, device)).backward()  # type: ignore[no-untyped-call]  # torch annotates a part
    except (ValueError, TypeError, NotImplementedError, AttributeError) as error:
        raise ConfigError("model", f"{family} cannot be trained on packed documents: {first_line(error)}") from error
    finally:
        hook.remove()
        model.train(was_training)
    model.zero_grad(set_to_none=True)
    gradient = embedded[0].grad
    if gradient is None or bool(gradient[:, : seq_len // 2].any()):
        raise ConfigError(
            "model",
            f"{family} lets a document see the one before it in its row; give one of {', '.join(TRIED)},"
            " or another family with full attention",
        )


def _keep(output: torch.Tensor, embedded: list[torch.Tensor]) -> None:
    output.retain_grad()
    embedded.append(output)


def _row(seq_len: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Two documents of token 2 and 3, half a row each; the second one is labelled."""
    position, half = torch.arange(seq_len, device=device), seq_len // 2
    is_second = position >= half
    return {
        "input_ids": torch.where(is_second, 3, 2)[None],
        "labels": torch.where(is_second, 3, -100)[None],
        "position_ids": torch.where(is_second, position - half, position)[None],
        "document_ids": is_second.long()[None],
    }
