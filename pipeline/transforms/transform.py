"""What a transform is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Transform:
    """One way to clean text: a rule for one text, and the code points without which it has nothing to do.

    `name` is its key in the config's `clean`, `off` the value that leaves it out. `apply` maps a text to the cleaned
    one and changes no text free of `code_points`. `examples` are (text, cleaned text) and serve as its tests.
    """

    name: str
    off: str
    code_points: Callable[[], Iterable[int]]
    apply: Callable[[str], str]
    examples: tuple[tuple[str, str], ...]
