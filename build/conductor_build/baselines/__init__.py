"""What a conductor must beat: strategies that are fixed, learned without planning, or clairvoyant.

    plays.py    what a strategy is, what it gives, and the records it is played on
    fixed.py    one worker, votes, cascades, and all of them over a pool
    choose.py   which of them is best on training prompts, overall and per task
    linear.py   ridge and logistic regression
    routers.py  nearest neighbours and logistic regression on embeddings
    bounds.py   random choice below, the per-prompt oracle above
    training.py what they may learn from: never the prompts they are scored on
    field.py    all of them over one pool

Every strategy is asked the same thing: a table of outcomes and row numbers in; score and cost of
each row out. Left out: strategies in which a worker reads another's answer, for records cannot show
what comes of that.
"""
