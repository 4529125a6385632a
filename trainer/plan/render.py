"""The answer as text: tables a person reads top down, and sentences that say what follows."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.plan.answer import Answer, SchemeAnswer
from trainer.plan.cluster import GB, GIB
from trainer.plan.epoch import DAY

_TERMS = ("parameters", "gradients", "optimizer", "gathered", "activations", "logits")


def render(answer: Answer) -> str:
    parts = [_question(answer), _memory(answer), _speed(answer), _saving(answer), _epoch(answer), _bill(answer)]
    return "\n\n".join(parts) + "\n"


def _question(answer: Answer) -> str:
    q = answer.question
    cluster, cut = q.cluster, q.cut
    active = q.shape.active
    size = f"{q.shape.num_parameters / 1e9:.2f} billion parameters"
    if active != q.shape.num_parameters:
        size += f", {active / 1e9:.2f} of them active,"
    return (
        f"{size} on {cluster.num_nodes} x {cluster.gpus_per_node} GPUs"
        f" of {cluster.gpu_bytes / GIB:.0f} GiB, {q.tokens / 1e9:,.0f} billion tokens in {q.deadline / DAY:g} days\n"
        f"tokens a step: {cut.global_batch} examples x {cut.seq_len} = {cut.tokens_per_step:,};"
        f" {cut.accumulation(cluster.num_gpus)} passes of micro-batch {cut.micro_batch} a GPU;"
        f" recompute {cut.recompute}, cross entropy {cut.cross_entropy}"
    )


def _memory(answer: Answer) -> str:
    usable = answer.question.cluster.usable_bytes
    rows = [["GiB a GPU", *_TERMS, "total", "fits", ""]]
    for scheme in answer.schemes:
        values = dict(scheme.memory.items())
        rows.append(
            [
                scheme.name,
                *(f"{values[term] / GIB:.1f}" for term in _TERMS),
                f"{scheme.memory.total / GIB:.1f}",
                "yes" if scheme.fits else "no",
                _remark(scheme, answer),
            ]
        )
    return f"memory with {answer.question.cut.optimizer}, of {usable / GIB:.1f} GiB usable\n" + _table(rows)


def _remark(scheme: SchemeAnswer, answer: Answer) -> str:
    if scheme is answer.chosen:
        return "<- the fastest that fits"
    if not scheme.offered:
        return "for comparison: not offered"
    if scheme.memory.host:
        return f"and {scheme.memory.host * answer.question.cluster.gpus_per_node / GIB:.0f} GiB of a node's memory"
    return ""


def _speed(answer: Answer) -> str:
    rows = [["seconds a step", "compute", "shards", "replicas", "host", "update", "total", "efficiency"]]
    for scheme in answer.schemes:
        step = scheme.step
        values = (step.compute, step.shard, step.replica, step.moves, step.update, step.total)
        rows.append([scheme.name, *(f"{value:.2f}" for value in values), f"{step.efficiency:.3f}"])
    return f"speed, at {answer.question.tokens_per_gpu_s:,.0f} tokens/s a GPU without exchange\n" + _table(rows)


def _saving(answer: Answer) -> str:
    saving, interval = answer.saving, answer.interval
    lines = [
        f"checkpoints of {saving.checkpoint_bytes / GB:.1f} GB: {saving.stall:.2g} s of stall,"
        f" {saving.write:.0f} s to write, a failure each {saving.mean_time_between_failures / 3600:.3g} h",
        f"least loss: one every {_minutes(saving.best_interval)},"
        f" {saving.lost_fraction(saving.best_interval):.2%} of the time lost,"
        f" {saving.mean_bandwidth(saving.best_interval) / GB:.2f} GB/s on average",
    ]
    if interval != saving.best_interval:
        lines.append(f"asked for: one every {_minutes(interval)}, {saving.lost_fraction(interval):.2%} lost")
    default = 25 * 60.0
    lines.append(
        f"at the default of 25 min: {saving.lost_fraction(default):.2%} lost,"
        f" {saving.mean_bandwidth(default) / GB:.3f} GB/s on average"
    )
    return "\n".join(lines)


def _epoch(answer: Answer) -> str:
    epoch, cluster = answer.epoch, answer.question.cluster
    lines = [
        f"epoch: {epoch.steps:,} steps, {epoch.tokens_per_s:,.0f} tokens/s after losses, {_days(epoch.seconds)};"
        f" the loader reads {epoch.loader_bytes_per_s / 1e6:.1f} MB/s a node",
    ]
    if answer.chosen is None:
        lines.append("No scheme fits: use more GPUs, a smaller micro-batch, recompute=full, or mesh.offload.")
    elif epoch.fits:
        lines.append(f"It fits the {_days(epoch.deadline)}.")
    else:
        lines += [
            f"It does not fit the {_days(epoch.deadline)}: by then {epoch.share:.1%} of the epoch is seen,"
            f" {epoch.tokens * epoch.share / 1e9:,.0f} billion tokens. What would fit, one of:",
            f"  - {epoch.share:.1%} of the corpus: sources weighted down to that, or the best part of it",
            f"  - {epoch.gpus_needed:,} GPUs instead of {cluster.num_gpus}, at the same efficiency",
            f"  - {_days(epoch.seconds)} on these",
        ]
    return "\n".join(lines)


def _bill(answer: Answer) -> str:
    rows = [["bill", "GPU hours", "GPUs", "storage", "traffic", "total"]]
    for name, bill in (("whole epoch", answer.bill), ("to the deadline", answer.bill_by_deadline)):
        values = (bill.gpu_hours, bill.gpus, bill.storage, bill.traffic, bill.total)
        rows.append([name, *(f"{value:,.0f}" for value in values)])
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """First column left, others right, but for a last one of remarks."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    has_remarks = rows[0][-1] == ""
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column == 0 or (has_remarks and column == len(row) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _days(seconds: float) -> str:
    return f"{seconds / DAY:.1f} days" if seconds >= DAY else f"{seconds / 3600:.1f} hours"
