"""What `python -m trainer` can do beside training: look at a run's checkpoints.

checkpoints.py    every checkpoint here and in the remote: whose, how old, whole or not
"""
