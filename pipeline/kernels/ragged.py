"""Lists of numbers end to end: copied piece by piece to other places, at memory speed.

pyarrow's `take` on a list column goes element by element, 190 MB of tokens a core-second; a build moves every token
twice (into a run, into a shard), so that alone would cost as much as tokenizing.
"""

from typing import Any

import numpy as np

from pipeline.kernels.arrow import readonly
from pipeline.kernels.compiled import kernel


def copy_pieces(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, places: np.ndarray, target: np.ndarray
) -> None:
    """values[starts[i] : starts[i] + lengths[i]] -> target from places[i] on, for each i; starts, lengths and places
    int64 (n,).
    """
    starts, lengths, places = (readonly(array, np.int64) for array in (starts, lengths, places))
    _copy(readonly(values, values.dtype), starts, lengths, places, target)


@kernel
def _copy(values: Any, starts: Any, lengths: Any, places: Any, target: Any) -> None:
    for i in range(len(starts)):
        target[places[i] : places[i] + lengths[i]] = values[starts[i] : starts[i] + lengths[i]]
