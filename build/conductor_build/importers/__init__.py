"""Where tables of outcomes come from: one file a source.

    zeroeval.py   the result files of a ZeroEval checkout
    csvfile.py    one CSV of prompt, model, answer, score, tokens, cost
    feedback.py   the appliance's own log of judged answers

Each turns its source into `Row`s (`rows.py`), a bad one with file and line; `write.py` puts them
into the one layout that `conductor_build.outcomes.load` reads. `replies.py` and `forms.py` say what
a reply's answer is and when two answers agree.
"""
