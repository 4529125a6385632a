"""Raw text -> training shards and a manifest, with every record accounted for.

    1. build.py    the command, and `build`: the whole pipeline on one screen, a stage a line
    2. config.py   corpus.yaml and --set -> BuildConfig, and the part of it that decides the data
    3. inputs.py   a source's paths -> its files -> units of work
    4. stages/     read         files -> kept documents (documents.py) and quarantined records
                                readers/ parse, transforms/ clean, filters/ judge, kernels/ do the arithmetic
                   deduplicate  hashes of their texts -> the documents that go; dedup/ is the pure part
                   tokenizer    the one given, or one trained on what was kept
                   encode       kept documents -> runs of tokens in key order (tokenization.py, identity.py, runs.py)
                   write        runs -> shards and lineage, cut where plan.py says from exact counts
    5. report.py   manifest and counts -> one HTML page

runtime.py carries a stage's units through Ray, each durable when done, so a build goes on where it was killed; it is
the only module that knows Ray. ledger.py counts where every record ended; it balances, or the build fails. Stages pass
urls and counts, never data. What leaves the package is what manifests/ defines: shards, lineage, inputs, manifest.
"""
