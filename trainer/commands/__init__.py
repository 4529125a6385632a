"""What `python -m trainer` can do beside training.

checkpoints.py    every checkpoint here and in the remote: whose, how old, whole or not
drill.py          save, start new processes, load, go on, compare
report.py         one HTML page about a run
"""
