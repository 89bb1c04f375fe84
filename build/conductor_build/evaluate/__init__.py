"""Judging a conductor on recorded outcomes, beside every baseline, on the same prompts.

    pools.py    over which workers and at which lambdas
    judge.py    plays everything and says who did how well
    scores.py   means, intervals, paired differences

Left out: whether the conductor itself saw the judged prompts (`seen.py`), and files (`report/`).
"""
