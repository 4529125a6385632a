"""Before a cluster is rented: what fits, how fast it is, when to save, whether the epoch meets the deadline, the bill.

    1. shape.py    model config -> the numbers that decide memory and arithmetic
    2. cluster.py  the machines, and how a run is cut (the question)
    3. memory.py   bytes a GPU holds, term by term, for each scheme
    4. speed.py    seconds of a step: arithmetic, and exchanges that it does not hide
    5. saving.py   checkpoint size, bandwidth, the interval that loses least
    6. epoch.py    tokens, steps, hours against the deadline; the loader's bandwidth; the bill
    7. mesh.py     the mesh that trainer/train.py takes when none is asked for
    8. answer.py   all of it together; render.py as text; __main__.py the command

All but the command is pure: values in, values out. docs/planning.md works the reference case through.
"""
