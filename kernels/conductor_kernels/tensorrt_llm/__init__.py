"""TensorRT-LLM as a runner of plans: the only place that imports it, and only when asked.

    runner.py      `load`, and the runner: requests in, tokens out, aborted when nobody waits
    guide.py       one plan's choices, made in TensorRT-LLM's logits processor
    folder.py      what a model folder holds, and what that asks of TensorRT-LLM
    arguments.py   our settings as arguments of its `LLM`
    versions.py    which versions are known, where their names live, whether signatures fit
    models.py      the model classes that it is given
    blocks.py      what is ours in them: the MLP and the head, on our ops
    counters.py    its statistics
    warmup.py      plans for nobody, before the first question
    plugins/       what its own programs import, alone in a folder that they put on the path

How to install and run it: docs/tensorrt-llm.md.
"""
