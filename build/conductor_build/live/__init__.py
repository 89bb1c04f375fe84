"""Live plays: plans run by the daemon's own executor, for training and judging.

game.py environment.py    one question over one pool; what plays it, and what comes of it
executed.py turns.py      a play: the daemon's rounds, with a trainer in the planner's place
stage.py opening.py       the daemon's parts, put together for plays; a game as its request
tally.py scoring.py       who was called, how long it took; answers judged, once each
calls.py accounts.py      asking workers once: cache, limits, retries; what it comes to
journal.py precompute.py  answers on disk; the bare questions asked ahead
replies.py briefs.py      answers as bodies; what a worker was shown, read back
simulated.py              a simulated pool
reactions.py known.py     what its workers react to; right answers
recorded.py               recorded outcomes in the place of workers
"""
