"""The stages of a build: each cuts its work into units and says what one unit does.

    read         files -> kept documents, quarantined records, counts             a unit: some 64 MB of files of one
    source
    deduplicate  content hashes and band hashes -> candidates -> verified edges -> dropped documents
    engine       a tokenizer.json -> the engine that encodes, proved for it       a unit: the tokenizer
    tokenizer    kept documents -> a tokenizer.json of their own, where asked for
    encode       kept documents -> runs of tokens in key order                    a unit: what one read unit kept
    pack         runs' index -> the plan of shards; best_fit counts rows first    a unit: 256 groups of documents
    write        runs -> one shard and its lineage                                a unit: one shard

A stage module has frozen task classes, one function a task that runs anywhere (a Ray worker, a test), and one function
that makes the units and runs them. Tasks carry urls and settings, never data. FORMAT in each module is part of every
key: raise it when the same task would write other bytes than before, and old intermediate results are recomputed
instead of mixed in.
"""
