"""Every family of causal language models against transformers itself, from files to files over 2 and 4 ranks.

    python -m tests.trainer.family_trial [--write] [FAMILY ...]     prints the table of docs/families.md; --write keeps it

A family is a small random model saved by save_pretrained in many files. In rows of several documents, compared with
transformers' eager attention over each document alone: logits, loss, and the gradient of every parameter. Then the
export: transformers must load it with equal logits, and it must hold the tensors, by name, that the files held.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from manifests import Dataset, load
from manifests.errors import UserError
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import SEQ_LEN, VOCAB_SIZE, write_dataset
from trainer.attention import choices
from trainer.config import MeshConfig, ModelConfig
from trainer.export import export
from trainer.families import try_family
from trainer.loss import IGNORED_LABEL, token_loss_sum
from trainer.model import build_model, choose_cross_entropy, fill, logits_of, plan_model, use_cross_entropy
from trainer.parallel import make_mesh, process_group, shard_model
from trainer.step import train_step

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": SEQ_LEN,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": 1,
}
_GROUPED = {"num_key_value_heads": 2}
_MOE = {**_GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
# What each family needs beside the sizes. Windows are shorter than documents, so that they count.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "mistral": {**_GROUPED, "sliding_window": 6, "head_dim": 8},
    "ministral": {**_GROUPED, "sliding_window": 6, "head_dim": 8},
    "mixtral": {**_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 6, "head_dim": 8},
    "qwen2": {**_GROUPED, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {**_GROUPED, "head_dim": 16},
    "qwen2_moe": {**_MOE, "num_experts": 5, "shared_expert_intermediate_size": 40},
    "qwen3_moe": {**_MOE, "num_experts": 6, "head_dim": 8},
    "qwen3_next": {**_MOE, "num_experts": 6, "head_dim": 8},
    "qwen3_5_text": {**_GROUPED, "head_dim": 8},
    "gemma": {**_GROUPED, "head_dim": 8},
    "gemma2": {**_GROUPED, "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8},
    "gemma3_text": {**_GROUPED, "head_dim": 8, "sliding_window": 6, "num_hidden_layers": 7},
    "gemma3n_text": {**_GROUPED, "head_dim": 8, "sliding_window": 6, "num_hidden_layers": 5, "num_kv_shared_layers": 0,
                     "intermediate_size": [64] * 5, "vocab_size_per_layer_input": VOCAB_SIZE, "laurel_rank": 8,
                     "hidden_size_per_layer_input": 8, "activation_sparsity_pattern": [0.0] * 5},
    "gemma4_text": {**_GROUPED, "head_dim": 8, "sliding_window": 6, "num_hidden_layers": 6, "global_head_dim": 8,
                    "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8,
                    "vocab_size_per_layer_input": VOCAB_SIZE},
    "phi": _GROUPED,
    "phi3": {**_GROUPED, "sliding_window": 6},
    "phimoe": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 6},
    "gpt_neox": {},
    "gptj": {"rotary_dim": 4},
    "gpt_bigcode": {},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "falcon": {},
    "falcon+alibi": {"alibi": True, "new_decoder_architecture": False},
    "bloom": {},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": SEQ_LEN},
    "codegen": {"rotary_dim": 4},
    "stablelm": _GROUPED,
    "starcoder2": {**_GROUPED, "sliding_window": 6},
    "olmo": _GROUPED,
    "olmo2": _GROUPED,
    "olmo3": {**_GROUPED, "sliding_window": 6},
    "olmoe": {**_GROUPED, "num_experts": 6, "num_experts_per_tok": 2},
    "cohere": _GROUPED,
    "cohere2": {**_GROUPED, "sliding_window": 6, "num_hidden_layers": 4},
    "granite": {**_GROUPED, "logits_scaling": 4.0},
    "granitemoe": {**_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2},
    "glm": {**_GROUPED, "head_dim": 8},
    "glm4": {**_GROUPED, "head_dim": 8},
    "glm4_moe": {**_MOE, "n_routed_experts": 6, "head_dim": 8, "first_k_dense_replace": 1, "n_group": 1},
    "deepseek_v2": {**_MOE, "n_routed_experts": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                    "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
                    "n_group": 2, "topk_group": 1},
    "deepseek_v3": {**_MOE, "n_routed_experts": 8, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                    "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
                    "n_group": 2, "topk_group": 1},
    "smollm3": {**_GROUPED, "num_hidden_layers": 4},
    "exaone4": {**_GROUPED, "sliding_window": 6, "num_hidden_layers": 4},
    "ernie4_5": {**_GROUPED, "head_dim": 8},
    "ernie4_5_moe": {**_GROUPED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24,
                     "moe_layer_start_index": 1},
    "nemotron": _GROUPED,
    "seed_oss": {**_GROUPED, "head_dim": 8},
    "hunyuan_v1_dense": {**_GROUPED, "head_dim": 8},
    "arcee": _GROUPED,
    "apertus": _GROUPED,
    "minimax": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
    "llama4_text": {**_GROUPED, "num_local_experts": 4, "head_dim": 8, "attention_chunk_size": 6,
                    "intermediate_size_mlp": 48, "num_hidden_layers": 4},
    "gpt_oss": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 6},
    "mamba": {}, "mamba2": {"head_dim": 8, "num_heads": 8, "n_groups": 1}, "falcon_mamba": {},
    "recurrent_gemma": {},
    "jamba": {**_GROUPED, "num_experts": 4},
    "bamba": {**_GROUPED, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1}, "rwkv": {}, "xlstm": {},
    "lfm2": {**_GROUPED, "layer_types": ["full_attention", "conv"]},
    "bart": {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64},
    "granitemoeshared": {**_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 24},
    "granitemoehybrid": {**_GROUPED, "num_local_experts": 4, "layer_types": ["attention", "attention"],
                         "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "shared_intermediate_size": 24},
    "minimax_m2": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "rotary_dim": 4},
    "dots1": {**_MOE, "n_routed_experts": 4, "head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
              "sliding_window": 6, "max_window_layers": 1, "n_group": 1, "topk_group": 1, "n_shared_experts": 1},
    "flex_olmo": {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2},
    "exaone_moe": {**_MOE, "num_experts": 4, "head_dim": 8, "sliding_window": 6, "num_hidden_layers": 4},
    "hunyuan_v1_moe": {**_GROUPED, "num_experts": 4, "moe_topk": 2, "head_dim": 8},
    "jetmoe": {"num_key_value_heads": 2, "num_local_experts": 4, "kv_channels": 8, "num_attention_heads": 4},
    "dbrx": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": SEQ_LEN,
             "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
             "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32}},
    "ministral3": {**_GROUPED, "head_dim": 8},
    "helium": {**_GROUPED, "head_dim": 8},
    "persimmon": {},
    "vaultgemma": {**_GROUPED, "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8},
    "deepseek_v32": {**_MOE, "n_routed_experts": 8, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                     "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
                     "n_group": 2, "topk_group": 1, "index_topk": 4, "index_head_dim": 8, "index_n_heads": 2},
    "nemotron_h": {}, "olmo_hybrid": {}, "kimi_linear": {},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """works: over every number of ranks. words: how, or why not, in a line. largest_share: of all parameters, the part
    that rank 0 of the last number of ranks held.
    """

    family: str
    works: bool
    words: str
    largest_share: float = 1.0


def make_batch() -> dict[str, torch.Tensor]:
    """Four rows of documents of 5 to 15 tokens; the last token of a document has no label."""
    draw = torch.Generator().manual_seed(3)
    lengths = [[9, 15, 8], [5, 13, 14], [11, 7, 14], [15, 12, 5]]
    documents = torch.stack([torch.repeat_interleave(torch.tensor(row)) for row in lengths])
    ids = torch.randint(0, VOCAB_SIZE, documents.shape, generator=draw)
    labels = ids.roll(-1, dims=1)
    labels[:, :-1][documents[:, 1:] != documents[:, :-1]] = IGNORED_LABEL
    labels[:, -1] = IGNORED_LABEL
    positions = torch.stack([torch.cat([torch.arange(length) for length in row]) for row in lengths])
    return {"input_ids": ids, "labels": labels, "position_ids": positions, "document_ids": documents}


def documents_of(batch: dict[str, torch.Tensor]) -> Iterator[tuple[int, slice]]:
    """Row and place of each document."""
    for row, ids in enumerate(batch["document_ids"]):
        start = 0
        for length in torch.unique_consecutive(ids, return_counts=True)[1].tolist():
            yield row, slice(start, start + length)
            start += length


def small_config(family: str, keys: dict[str, Any]) -> PretrainedConfig:
    """A small config of the family; after a plus in its name, a variant."""
    return AutoConfig.for_model(family.partition("+")[0], **{**_SIZES, **FAMILIES[family], **keys})


def save_family(family: str, folder: Path) -> Any:
    """transformers' model of the family, every parameter drawn, and its files in `folder`."""
    model: Any = AutoModelForCausalLM.from_config(small_config(family, {}), attn_implementation="eager")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in [*model.parameters(), *(b for n, b in model.named_buffers() if n in model.state_dict())]:
            if tensor.is_floating_point():
                drawn = torch.randn(tensor.shape, generator=draw)
                tensor.copy_(drawn * tensor.shape[-1] ** -0.5 if tensor.ndim > 1 else 1.0 + 0.2 * drawn)
    model.eval().save_pretrained(folder, max_shard_size="20KB")
    return model


def reference(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Each document by itself, as transformers masks it: the loss, its gradients, and the logits in their places."""
    logits = torch.zeros(*batch["input_ids"].shape, model.config.vocab_size)
    total = torch.zeros((), dtype=torch.float64)
    for row, place in documents_of(batch):
        alone = model(input_ids=batch["input_ids"][row : row + 1, place], use_cache=False).logits
        total = total + token_loss_sum(alone, batch["labels"][row : row + 1, place])
        logits[row, place] = alone[0].detach()
    total.backward()
    gradients = {name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in model.named_parameters()}
    return {"logits": logits, "loss": float(total.detach()), "gradients": gradients}


class Recorder(torch.optim.SGD):
    """An optimizer that notes the whole gradients it is given, and moves nothing."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.0)
        self._model = model
        self.gradients: dict[str, torch.Tensor] = {}

    def step(self, *_: Any) -> None:  # type: ignore[override]  # it never gets a closure
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self.gradients[name] = parameter.grad.full_tensor()


def on_rank(arguments: list[str]) -> int:
    """What a rank does: MANIFEST FOLDER. Rank 0 writes FOLDER/found-N.json, or FOLDER/refused."""
    manifest, folder = arguments[0], Path(arguments[1])
    dataset = load(manifest)
    with process_group() as ranks:
        try:
            plan = plan_model(ModelConfig(path=str(folder / "model")), dataset.manifest)
            family = try_family(plan, choices("auto", ranks.device))
            found = _measure(plan, family, dataset, folder, ranks)
        except UserError as error:
            if ranks.is_first:
                (folder / "refused").write_text(str(error), encoding="utf-8")
            return 2
        if ranks.is_first:
            (folder / f"found-{ranks.world_size}.json").write_text(json.dumps(found), encoding="utf-8")
        ranks.sum([0])
    return 0


def _measure(plan: Any, family: Any, dataset: Dataset, folder: Path, ranks: Any) -> dict[str, Any]:
    expected = torch.load(folder / "reference.pt", weights_only=True)
    batch = make_batch()
    model = build_model(plan, attention=family.attention)
    use_cross_entropy(model, choose_cross_entropy("auto", plain_head=family.plain_head))
    sharded = shard_model(model, make_mesh(MeshConfig(), ranks), "fp32")
    fill(model, plan, seed=0)
    model.eval()
    with torch.no_grad():
        logits = logits_of(model, batch)
    sharded.reshard()
    largest = float(expected["logits"].abs().max())
    share = len(batch["labels"]) // ranks.world_size
    mine = {name: column[ranks.rank * share : (ranks.rank + 1) * share] for name, column in batch.items()}
    recorder = Recorder(model)
    result = train_step(
        model, recorder, [mine], num_tokens=1, rate=0.0, clip_norm=None, device=torch.device("cpu")
    )
    errors = []
    # Some are 0 but for rounding (a bias of keys moves all scores of a token alike): measured against the largest.
    scale = max(float(gradient.norm()) for gradient in expected["gradients"].values())
    for name, gradient in expected["gradients"].items():
        ours = recorder.gradients.get(name, torch.zeros_like(gradient))
        errors.append((float((ours - gradient).norm() / (gradient.norm() + 1e-3 * scale)), name))
    target = folder / f"final-{ranks.world_size}"
    export(model, plan, dataset, target, ranks)
    found = {
        "attention": family.attention,
        "plain_head": family.plain_head,
        "logits": float((logits - expected["logits"]).abs().max()) / largest,
        "loss": abs(result.loss - expected["loss"]) / expected["loss"],
        "gradient": max(errors),
        "largest_share": _largest_share(model),
    }
    if ranks.is_first:
        back = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager")
        with torch.no_grad():
            found["exported"] = float((logits_of(back, batch) - expected["logits"]).abs().max()) / largest
        found["names"] = _names(target) == _names(folder / "model")
    return found


def _largest_share(model: Any) -> float:
    """Of all parameters, the part that this rank holds."""
    total = sum(parameter.numel() for parameter in model.parameters())
    return sum(parameter.to_local().numel() for parameter in model.parameters()) / total


def _names(folder: Path) -> dict[str, Any]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            found.update({name: opened.get_slice(name).get_shape() for name in opened.keys()})  # noqa: SIM118 - no dict
    return found


def try_it(family: str, manifest: str, folder: Path, ranks: ForkedRanks, *, sizes: tuple[int, ...] = (2, 4)) -> Outcome:
    """One line of the table."""
    folder.mkdir()
    batch = make_batch()
    try:
        model = save_family(family, folder / "model")
        torch.save(reference(model, batch), folder / "reference.pt")
    except Exception as error:  # of transformers, of any kind: the family cannot even be tried
        return Outcome(family=family, works=False, words=f"transformers makes none so small: {error}"[:150])
    found: dict[str, Any] = {}
    for size in sizes:
        codes, log = ranks.run(
            [manifest, str(folder)], folder / "log", ranks=size, call="tests.trainer.family_trial:on_rank"
        )
        if (folder / "refused").exists():
            return Outcome(family=family, works=False, words=(folder / "refused").read_text(encoding="utf-8"))
        if codes != [0] * size:
            return Outcome(family=family, works=False, words=f"BROKEN {codes}: {[l for l in log if l.strip()][-1:]}")
        found = json.loads((folder / f"found-{size}.json").read_text(encoding="utf-8"))
        wrong = [name for name in ("logits", "loss", "exported") if not found[name] < 1e-5]
        wrong += ["gradient"] if not found["gradient"][0] < 1e-4 else []
        wrong += [] if found["names"] else ["names"]
        if wrong:
            return Outcome(family=family, works=False, words=f"BROKEN {size} ranks: {wrong} {found}")
    words = f"{found['attention']}; {'chunked' if found['plain_head'] else 'plain'} loss"
    return Outcome(family=family, works=True, words=words, largest_share=found["largest_share"])


def main() -> None:
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or list(FAMILIES)
    with tempfile.TemporaryDirectory() as scratch:
        manifest = write_dataset(Path(scratch) / "data", train=(3,), validation=(1,))
        ranks = ForkedRanks()
        for family in chosen:
            outcome = try_it(family, str(manifest), Path(scratch) / family, ranks)
            print(f"| {family} | {'works' if outcome.works else 'refused'} | {outcome.words} |", flush=True)
        ranks.close()


if __name__ == "__main__":
    main()
