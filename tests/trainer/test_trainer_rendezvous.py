"""Ranks that start again find a store without the addresses of the start before, however the starts overlap."""

import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from torch.distributed import Store, TCPStore

from trainer.rendezvous import fresh_store

WORLD_SIZE = 4


def serve() -> Store:
    """What torchrun keeps."""
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30), wait_for_workers=False)


def connect(server: Store, timeout_s: float = 30) -> Store:
    """A rank's own way to it, as a process has one: a waiting `get` holds its connection."""
    return TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=timeout_s), wait_for_workers=False)


def start(server: Store, chance: random.Random) -> list[Store]:
    """All ranks' stores; they come in any order, some late."""
    found: dict[int, Store] = {}

    def rank_of(rank: int, delay_s: float) -> Callable[[], None]:
        def join() -> None:
            time.sleep(delay_s)
            found[rank] = fresh_store(connect(server), rank, WORLD_SIZE)

        return join

    threads = [threading.Thread(target=rank_of(rank, chance.choice((0.0, 0.05)))) for rank in range(WORLD_SIZE)]
    chance.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(WORLD_SIZE)]


def test_each_start_has_a_store_of_its_own_and_the_same_for_all_ranks() -> None:
    shared = serve()
    chance = random.Random(0)
    for number in range(8):
        stores = start(shared, chance)
        assert not any(store.check(["address"]) for store in stores)
        stores[number % WORLD_SIZE].set("address", str(number))
        assert [store.get("address") for store in stores] == [str(number).encode()] * WORLD_SIZE


def test_a_rank_that_joined_a_start_that_failed_joins_the_next_with_another_number() -> None:
    """Rank 3 never came: the others of that start are gone, and what they wrote is still there."""
    shared = serve()
    for rank in range(3):
        shared.set(f"here/{rank}", f"old-{rank}")
    shared.set("start", '["old-0", "old-1", "old-2", "old-3"]')
    shared.add("agreed/old-0", 2)
    stores = start(shared, random.Random(1))
    stores[0].set("address", "new")
    assert [store.get("address") for store in stores] == [b"new"] * WORLD_SIZE


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_others_never_come_says_so(rank: int) -> None:
    shared = serve()
    shared.set("here/1", "old-1")
    shared.set("start", '["old-0", "old-1"]')
    with pytest.raises(TimeoutError, match=f"rank {rank} of 2 waited 0:00:00.500000 for the other ranks to start"):
        fresh_store(connect(shared, timeout_s=0.5), rank, 2)
