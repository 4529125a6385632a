"""A store that holds nothing an earlier start of the same ranks left behind.

torchrun keeps one key-value store over all its restarts, and torch's own set-up reads addresses from it that ranks of
an earlier start wrote: it then dials a process that is gone, and each restart fails for it (pytorch#167288). A count of
restarts cannot tell the starts apart: each agent has its own, and a lost node moves only some. So the ranks agree:

    each rank      here/R    = a number nobody had before
    rank 0         start     = [numbers of all], again and again, as long as one of them is an old one
    rank R         waits until `start` holds its number, and says so under rank 0's number
    all            keys of this start begin with rank 0's number
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # public, missing from torch's stubs

_POLL_S = 0.02


def fresh_store(store: Store, rank: int, world_size: int) -> Store:
    """Collective. A part of `store` that is empty and the same on all ranks.

    Raises TimeoutError where the others are not there within the store's timeout.
    """
    timeout: timedelta = store.timeout  # type: ignore[attr-defined]  # public, missing from torch's stubs
    mine, deadline = secrets.token_hex(8), time.monotonic() + timeout.total_seconds()
    store.set(f"here/{rank}", mine)
    while time.monotonic() < deadline:
        if rank == 0:
            store.set("start", json.dumps([store.get(f"here/{other}").decode() for other in range(world_size)]))
            if store.add(f"agreed/{mine}", 0) == world_size - 1:
                return PrefixStore(mine, store)
        elif mine in (numbers := json.loads(store.get("start"))):
            store.add(f"agreed/{numbers[0]}", 1)
            return PrefixStore(numbers[0], store)
        time.sleep(_POLL_S)
    raise TimeoutError(f"rank {rank} of {world_size} waited {timeout} for the other ranks to start")
