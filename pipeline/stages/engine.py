"""The engine that encodes, opened once a process and proved for the very tokenizer.json in use.

A unit: one tokenizer. It runs before any text is read (as soon as there is a tokenizer, where the build trains one),
and its worker keeps what it loaded for encoding. Every other worker proves the engine for itself when it first encodes:
an engine takes other code on other processors, and 151 texts cost a fifth of a second beside loading's one and a half.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

from manifests import storage
from manifests.canonical import fingerprint
from pipeline.runtime import Runtime, Summary, Unit
from pipeline.tokenization import Engines, PlainTokenizer, SpecialIds, Tokenizer, open_engines

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class TokenizerInUse:
    """What a worker has to know of the tokenizer; the checks were made when it was settled."""

    url: str
    """The data set's own copy, which the name of its content names."""
    sha256: str
    special_ids: SpecialIds
    setting: str
    """`tokenizer.engine`: "auto" or "reference"."""

    @classmethod
    def published(cls, tokenizer: Tokenizer, root: str, setting: str) -> "TokenizerInUse":
        """Copy the tokenizer into the data set at `root`."""
        url = storage.join(root, "tokenizers", f"{tokenizer.sha256}.json")
        storage.write_bytes(url, tokenizer.data)
        return cls(url=url, sha256=tokenizer.sha256, special_ids=tokenizer.special_ids, setting=setting)

    def fingerprint(self) -> str:
        """Of all that decides ids, the engines' versions included."""
        libraries = {name: version(name) for name in ("tokenizers", "fastokens")}
        return fingerprint([self.sha256, self.special_ids.eos, self.special_ids.bos, self.setting, libraries])


@lru_cache(maxsize=1)
def open_in_worker(used: TokenizerInUse) -> Engines:
    """The engines, loaded and proved once a process."""
    return open_engines(PlainTokenizer.of(storage.read_bytes(used.url), used.special_ids), used.setting)


def prove(used: TokenizerInUse) -> Summary:
    """Say which engine encodes, and why."""
    engines = open_in_worker(used)
    return {"engine": engines.chosen.name, "why": engines.why}


def prove_engine(runtime: Runtime, used: TokenizerInUse) -> str:
    """Which engine encodes, and why, in words; durable, so a build that goes on does not prove it again."""
    key = fingerprint(["engine", FORMAT, used.fingerprint()])
    [proved] = runtime.run("engine", prove, [Unit(key=key, label=used.url, task=used)])
    return f"{proved['engine']} ({proved['why']})"
