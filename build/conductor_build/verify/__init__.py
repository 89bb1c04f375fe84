"""Does this box do what it should? Run once on a new GPU: `conductor-build verify --gpu`.

    command.py      the command
    features.py     what is looked at, in order
    finding.py      what is found: pass, fail or not here
    machine.py      driver, architecture, torch, Triton
    kernels.py      every op against float64, CUDA graphs
    plans.py        plans written on the device and on the CPU, token by token, of `smallmodel.py`
    installed.py    a bundle's machine code for this GPU, TensorRT-LLM

It changes nothing and asks no network. The checks of the ops are `conductor_kernels.checks`, those
that tests and benchmarks use too. Left out: speed (`kernels/bench/`).
"""
