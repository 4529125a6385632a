"""What `python -m loader` can do beside its trace: check before a run, measure here and now, look into a batch.

check.py    numbers of a run before it starts, from the manifest alone     shuffle.py   how well its order mixes
bench.py    bytes, examples and waits of this machine, now
peek.py     one batch as text, with its documents drawn
"""
