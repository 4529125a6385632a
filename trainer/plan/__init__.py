"""Before a cluster is rented: what fits, how long it takes, when to save.

1. shape.py        model config -> the numbers that decide memory and arithmetic
"""
