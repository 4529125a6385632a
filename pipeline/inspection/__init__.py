"""Choosing thresholds by looking: what a source's texts are like, where its filters cut, and what stands at each cut.

config, source -> sample.py: some texts -> panels.py: a panel a rule (pure) -> terminal.py | page.py: shown
"""
