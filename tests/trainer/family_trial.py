"""Every family of causal language models against transformers itself, from files to files over 2 and 4 ranks.

    python -m tests.trainer.family_trial [FAMILY ...]     a line each; exit code 1: one is neither right nor refused
    python -m tests.trainer.family_trial --write          and docs/families.md

A family is a small random model saved by save_pretrained in many files. In rows of several documents, compared with
transformers' eager attention over each document alone: logits, loss, and the gradient of every parameter. Then the
export: transformers must load it with equal logits, and it must hold the tensors, by name, that the files held.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from manifests import Dataset, load
from manifests.errors import UserError
from tests.trainer.family_sizes import FAMILIES, small_config
from tests.trainer.forked_ranks import ForkedRanks
from tests.trainer.trainer_datasets import VOCAB_SIZE, write_dataset
from trainer.attention import choices
from trainer.config import MeshConfig, ModelConfig
from trainer.export import export
from trainer.families import try_family
from trainer.loss import IGNORED_LABEL, token_loss_sum
from trainer.model import build_model, choose_cross_entropy, fill, logits_of, plan_model, use_cross_entropy
from trainer.parallel import make_mesh, process_group, shard_model
from trainer.step import train_step

# Neither trained right nor refused: what must not be.
BROKEN = "BROKEN"


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
            family = try_family(plan, choices("auto", ranks.device), ranks.device)
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
    result = train_step(model, recorder, [mine], num_tokens=1, rate=0.0, clip_norm=None, device=torch.device("cpu"))
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
            return Outcome(family=family, works=False, words=f"{BROKEN}, {codes}: {log[-1:]}")
        found = json.loads((folder / f"found-{size}.json").read_text(encoding="utf-8"))
        wrong = [name for name in ("logits", "loss", "exported") if not found[name] < 1e-5]
        wrong += ["gradient"] if not found["gradient"][0] < 1e-4 else []
        wrong += [] if found["names"] else ["names"]
        if wrong:
            return Outcome(family=family, works=False, words=f"{BROKEN}, {size} ranks: {wrong} {found}")
    words = f"{found['attention']}; {'chunked' if found['plain_head'] else 'plain'}"
    return Outcome(family=family, works=True, words=words, largest_share=found["largest_share"])


_PAGE = Path(__file__).parents[2] / "docs" / "families.md"
_MARK = "<!-- from here on written by python -m tests.trainer.family_trial --write -->\n"


def write_page(outcomes: Sequence[Outcome]) -> None:
    """The tables of docs/families.md; what stands above them is kept."""
    works = [f"| {one.family} | {one.words.replace('; ', ' | ')} |" for one in outcomes if one.works]
    refused = [f"| {one.family} | {one.words.removeprefix('model: ')} |" for one in outcomes if not one.works]
    head = _PAGE.read_text(encoding="utf-8").partition(_MARK)[0]
    lines = [
        f"\nWith transformers {transformers.__version__}, torch {torch.__version__}, on CPU.\n",
        "| trained | attention | loss |\n|---|---|---|",
        *works,
        "\n| refused | because |\n|---|---|",
        *refused,
    ]
    _PAGE.write_text(head + _MARK + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or list(FAMILIES)
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        manifest = write_dataset(Path(scratch) / "data", train=(3,), validation=(1,))
        ranks = ForkedRanks()
        for family in sorted(chosen):
            outcomes.append(try_it(family, manifest, Path(scratch) / family, ranks))
            sys.stdout.write(f"{outcomes[-1]}\n")
            sys.stdout.flush()
        ranks.close()
    if "--write" in sys.argv:
        write_page(outcomes)
    return int(any(BROKEN in outcome.words for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
