"""Documents -> examples: at which place each document's tokens lie. Pure: lengths in, places out.

Places count tokens from the start of a stretch of examples, row after row: place 0 .. seq_len - 1 is its first example.

**concat** lays documents end to end, in the order of their keys, and cuts the stream into rows.

**best_fit** packs a *group* at a time, best fit decreasing, and cuts only what is longer than a row. A group is an
interval of keys, so it is a fair sample of all documents, and it is found from the count of a split's tokens and
seq_len alone: no task, file or bucket decides it.

    seq_len 8, one group, in key order       A 5   B 3   C 20   D 2   E 6     (EOS included)
    C is longer than a row                   two whole rows, C[0:16], and a rest of 4
    decreasing                               E 6   A 5   C[16:20] 4   B 3   D 2
    each into the fullest row that takes it  E opens a row (2 left), A opens one (3 left), C[16:20] opens one (4 left),
                                             B fits A's row exactly, D fits E's row exactly
    rows in the order of a hash, by opener   C[0:8]    C[8:16]    C[16:20] . . . .    A A A A A B B B    D D E E E E E E
    (C, A, E); in a row, in key order        5 examples, 36 tokens, 4 places of padding

All of a cut document but its rest fills whole rows, so no row has a document after one without its EOS. The hash is
of the place in key order of the document that opened a row: of equally long documents the first one opens, so by plain
key order a group would begin with its rows of short documents (8 % more of them in its first half), and a shard cut out
of the middle of a group would be no fair sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from pipeline.kernels.best_fit import best_fit_rows, scrambled

MIN_GROUP_TOKENS = 1 << 20
MIN_GROUP_ROWS = 1 << 9
MAX_GROUP_TOKENS = 1 << 25
"""A group holds 1 M tokens and 512 rows or more, at most twice that: with so many rows to choose from, padding is 0.2 %
and less (docs/tokens.md), and a shard of 256 MB is some thirty groups. Larger groups pad less and mix worse: a shard
begins and ends in the middle of one. Of rows of more than 65,536 tokens a group holds fewer, since a task must hold it:
64 M tokens are 256 MB.
"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Pieces of documents and their places: int64 arrays of one length, ascending in `place`."""

    document: np.ndarray
    """Index of the piece's document."""
    document_offset: np.ndarray
    """Tokens of the document before the piece."""
    num_tokens: np.ndarray
    place: np.ndarray

    def between(self, first: int, end: int) -> "Layout":
        """What lies at places [first, end), pieces cut there, with places counted from `first`."""
        start, stop = np.maximum(self.place, first), np.minimum(self.place + self.num_tokens, end)
        inside = np.flatnonzero(start < stop)
        return Layout(
            document=self.document[inside],
            document_offset=(self.document_offset + start - self.place)[inside],
            num_tokens=(stop - start)[inside],
            place=start[inside] - first,
        )

    def after(self, num_documents: int) -> "Layout":
        """The same with so many documents before it."""
        return replace(self, document=self.document + num_documents)

    @classmethod
    def joined(cls, layouts: Sequence["Layout"]) -> "Layout":
        """Layouts one after the other."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(layout, name) for layout in layouts]) for name in names})


def concat(lengths: np.ndarray) -> Layout:
    """Documents end to end.

    Args:
        lengths: int64 (n,), tokens of each document, EOS included, in key order.
    """
    ends = np.cumsum(lengths)
    return Layout(
        document=np.arange(len(lengths)),
        document_offset=np.zeros(len(lengths), np.int64),
        num_tokens=lengths,
        place=ends - lengths,
    )


def best_fit(lengths: np.ndarray, seq_len: int) -> tuple[Layout, int]:
    """Best fit decreasing of one group; the layout, and how many rows it takes.

    Args:
        lengths: int64 (n,), tokens of each document, EOS included and so 1 or more, in key order.
        seq_len: places in a row.
    """
    num_whole, rests = np.divmod(lengths, seq_len)
    cut = np.flatnonzero(num_whole)
    # Stable: of equal lengths, the document first in the order of keys goes first.
    rest_document = np.argsort(-rests, kind="stable")[: np.count_nonzero(rests)]
    rest_length = rests[rest_document]
    row, num_rows = best_fit_rows(rest_length, seq_len)

    # Blocks of rows: the whole rows of a cut document, and each packed row, opened by the first piece given to it.
    _, first_piece = np.unique(row, return_index=True)
    opener = np.concatenate([cut, rest_document[first_piece]])
    block_rows = np.concatenate([num_whole[cut], np.ones(num_rows, np.int64)])
    order = np.lexsort((np.arange(len(opener)), scrambled(opener)))  # a document's whole rows before its rest
    block_start = np.empty(len(order), np.int64)
    block_start[order] = (np.cumsum(block_rows[order]) - block_rows[order]) * seq_len

    # Inside a packed row, documents in key order, end to end.
    start = block_start[len(cut) :][row]
    inside = np.lexsort((rest_document, start))
    document, length, start = rest_document[inside], rest_length[inside], start[inside]
    place = np.cumsum(length) - length
    begins = np.flatnonzero(np.diff(start, prepend=-1))
    place += np.repeat(start[begins] - place[begins], np.diff(np.append(begins, len(start))))

    all_places = np.concatenate([block_start[: len(cut)], place])
    by_place = np.argsort(all_places)
    layout = Layout(
        document=np.concatenate([cut, document])[by_place],
        document_offset=np.concatenate([np.zeros(len(cut), np.int64), num_whole[document] * seq_len])[by_place],
        num_tokens=np.concatenate([num_whole[cut] * seq_len, length])[by_place],
        place=all_places[by_place],
    )
    return layout, int(block_rows.sum())


def num_groups_for(num_tokens: int, seq_len: int) -> int:
    """Into how many groups best_fit divides a split: a power of two, so that a group is the leading bits of a key."""
    wanted = min(max(MIN_GROUP_TOKENS, MIN_GROUP_ROWS * seq_len), max(MAX_GROUP_TOKENS, seq_len))
    return 1 << max(0, (num_tokens // wanted).bit_length() - 1)
