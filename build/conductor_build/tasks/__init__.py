"""Tasks: questions with a way to judge an answer. One file a kind.

common.py       what a task is, and what a void score is
views.py        slices, mixtures, training and held-out parts: tasks made of tasks
gym.py          reasoning-gym's generators, with their own verifiers (gymverifier.py)
jsonl.py        questions of a file: exact, numeric or code answers (judge.py)
recorded.py     a table of recorded outcomes
calibration.py  what `conductor-build probe` asks if nothing else is said
jail.py         running what a model wrote, locked down (jailed.py)
"""
