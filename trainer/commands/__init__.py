"""What `python -m trainer` can do beside training.

checkpoints.py    every checkpoint here and in the remote: whose, how old, whole or not
drill.py          save, start new processes, load, go on, compare
report.py         one HTML page about a run
diagnose.py       what limits a run, and what to try first
scaling.py        the same step on 1, 2, 4 ... ranks
trial.py          short runs in the configuration of another one, for drill and scaling
"""
