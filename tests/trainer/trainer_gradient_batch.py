"""One global batch and one model, the same in every process of the gradient tests."""

import torch
from transformers import AutoConfig, PreTrainedModel

from loader.columns import COLUMNS, fill_columns
from tests.datasets import EOS
from tests.trainer.trainer_datasets import SEQ_LEN, TINY_MODEL, VOCAB_SIZE, random_rows
from trainer.model import ModelPlan, use_cross_entropy, whole_model

NUM_EXAMPLES = 8


def make_plan() -> ModelPlan:
    config = AutoConfig.for_model("llama", vocab_size=VOCAB_SIZE, max_position_embeddings=SEQ_LEN, **TINY_MODEL)
    return ModelPlan(config=config, weights=None, words="")


def make_reference() -> PreTrainedModel:
    """The model in one process, its loss computed the plain way."""
    model = whole_model(make_plan(), seed=0)
    use_cross_entropy(model, "plain")
    return model


def make_rows() -> dict[str, torch.Tensor]:
    """The columns of 8 examples; their labels are thinned out very unequally, the last example has one left."""
    batch = {name: torch.empty((NUM_EXAMPLES, SEQ_LEN), dtype=torch.int64) for name in COLUMNS}
    arrays = {name: column.numpy() for name, column in batch.items()}
    fill_columns(random_rows(NUM_EXAMPLES, seed=5), NUM_EXAMPLES, arrays, eos_id=EOS, padding_id=65_535)
    for example in range(NUM_EXAMPLES):
        batch["labels"][example, SEQ_LEN - 4 * example :] = -100
    return batch
