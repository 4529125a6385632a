"""Train a language model on a manifest, and tell the truth about it.

    1. train.py      the command and the loop: config -> model -> steps -> final export
    2. config.py     one YAML file plus --set, made into frozen dataclasses by manifests/yaml_config.py
    3. model.py      a Hugging Face directory, or a config: the module without memory; weights.py fills it, each rank
                     its own share, of what transformers makes of the files (deferred.py); attention.py keeps documents
                     apart, families.py tries on a small copy (small_copy.py) whether it does
    4. parallel.py   torchrun's facts, the device mesh, FSDP2 over gloo or NCCL; blocks.py recomputes and compiles;
                     rendezvous.py lets ranks start again
    5. stream.py     loader -> the micro-batches of one step, and that step's digest
    6. step.py       forward, backward, clip, update; loss.py, cross_entropy.py, loss_scale.py, optimizer.py,
                     update_rules.py, schedule.py and phases.py hold the parts; router_loss.py and experts.py those of
                     experts
    7. evaluate.py   perplexity over every validation example
    8. checkpoint.py save and resume: checkpoint_write.py, copier.py and background.py work beside the training,
                     checkpoint_files.py and remote.py know the folders, rng.py and compatibility.py hold the rest
    9. observer.py   whoever watches: journal.py (metrics.jsonl, metrics/ holds the derived figures), timeline.py
                     (what the time went to, goodput.py reads it), exporter.py (Prometheus); report.py and
                     diagnosis.py tell it to a person
   10. export.py     the result as a Hugging Face directory
   11. plan/         what fits, how fast, how often to save: python -m trainer.plan, before anything runs
   12. signals.py    a wish to stop; watchdog.py ends a rank that hangs; commands/ is what `python -m trainer` can do

Everything durable about a run lies under one folder:

    <output>/lock                    held while a run writes here
    <output>/run.json                what ran: resolved config, data set, code
    <output>/metrics.jsonl           one object a step
    <output>/timeline.jsonl          one object a span of time, over all restarts
    <output>/checkpoints/step-N/     whole checkpoints only; files.json lists each file with size and sha256
    <output>/final/                  the trained model, written after the last step
"""
