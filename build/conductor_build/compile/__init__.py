"""A bundle made ready for one kind of machine: what is written for it, and by what.

    command.py         `conductor-build compile`
    targets.py         the targets, by name: each a function in a file of its own
    triton_target.py   target `triton`: our kernels, compiled ahead of time, in a copy of the bundle

Below `triton_target.py`:

    compiler.py        one kernel for one architecture
    pool.py            all of them, in processes of their own
    failed.py          the error that names a kernel which does not compile
    machinecode.py     what the machine code shows: registers, spills, width of loads
    assembly.py        what the code before that shows: whose memory each load reads
    gates.py           what of that no kernel may show
    report.py          the same for people
"""
