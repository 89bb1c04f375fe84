"""How fast the language model writes and scores plans, in how much memory, and how often a raw one
writes a plan by itself.

    PYTHONPATH=build:appliance:tests python tests/bench/bench_lm.py [--models DIR] [--threads 1 2]
        [--examples 0 1 4] [--dtype auto] [--max-tokens 64] [--parse-rate]

One process a line, so that each has its own peak of memory: `write` is 8 prompts x 8 plans, `score`
the same plans again with the backward pass, for the gradient through all of the prompt, without its
prefix, and without any of it. Seconds of CPU beside those of the clock tell how busy the machine
was with others. `conductor models pull smollm2-135m` first; the first run converts it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

QUESTIONS = (
    "What is 348 + 27 * 6?",
    "Sort these words: pear, apple, fig, plum.",
    "How many times does the letter e stand in 'elderberry'?",
    "Which day of the week is 100 days after a Tuesday?",
    "Write a Python function that merges two sorted lists.",
    "Convert 1011 from base 2 to base 7.",
    "All birds fly. Tux is a bird. Does Tux fly? Answer yes or no.",
    "Anna is twice as old as Ben, who is 7. How old are they together?",
)
_REACHES = {
    "prompt": (True, True),
    "request": (False, True),
    "plan": (False, False),
}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - cpu


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """One line of the table, in this process."""
    import torch

    from conductor.plan.fewshot import EXAMPLES
    from conductor_build.lm.base import best_dtype, load_base
    from conductor_build.lm.policy import Lora, PlanPolicy, Written
    from conductor_build.lm.tokens import Writer

    torch.set_num_threads(arguments.thread)
    auto = arguments.dtype == "auto"
    dtype = best_dtype() if auto else getattr(torch, arguments.dtype)
    base = load_base("smollm2-135m", models=arguments.models, dtype=dtype)
    writer = Writer.of(base, examples=arguments.example)
    policy = PlanPolicy(base, writer, lora=Lora())
    pool = EXAMPLES[2].request
    asks = [writer.ask(replace(pool, question=one, prompt_tokens=30)) for one in QUESTIONS]
    generator = torch.Generator().manual_seed(0)
    line: dict[str, object] = {
        "dtype": str(dtype).removeprefix("torch."),
        "prefix": len(writer.prefix),
        "rest": sum(len(ask.rest) for ask in asks) // len(asks),
    }
    if arguments.parse_rate:
        free = policy.write(asks, 8, generator, constrained=False, max_tokens=arguments.max_tokens)
        plans = [one.plan is not None for group in free for one in group]
        return line | {"parsed": sum(plans), "of": len(plans)}
    written: list[list[Written]] = []
    line["write"] = timed(
        lambda: written.extend(policy.write(asks, 8, generator, max_tokens=arguments.max_tokens))
    )
    line["tokens"] = sum(len(one.tokens) for group in written for one in group)
    for name, (prefix, rest) in _REACHES.items():

        def back(prefix: bool = prefix, rest: bool = rest) -> None:
            scored = policy.score(asks, written, prefix_gradient=prefix, rest_gradient=rest)
            for one in scored:
                (-one.log_prob.sum() - 0.01 * one.entropy.sum()).backward()  # type: ignore[no-untyped-call]

        line[name] = timed(back)
        if name == "prompt":
            line["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return line


def shown(threads: int, examples: int, line: dict[str, object]) -> str:
    start = f"{threads:7} {examples:8} {line['dtype']!s:>8} {line['prefix']:6} {line['rest']:5}"
    if "parsed" in line:
        return f"{start}  {line['parsed']} of {line['of']} are plans"
    spent = (line[name] for name in ("write", *_REACHES))
    times = " ".join(f"{clock:7.1f} ({cpu:5.1f})" for clock, cpu in spent)  # type: ignore[misc]
    return f"{start} {line['tokens']:6} {times} {line['rss']:6.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--models", type=Path, default=Path("var/models"))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--examples", type=int, nargs="+", default=[0, 1, 4])
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--parse-rate", action="store_true", help="unconstrained plans instead")
    parser.add_argument("--line", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.line:
        [arguments.thread], [arguments.example] = arguments.threads, arguments.examples
        print(json.dumps(measure(arguments)))
        return
    if not arguments.parse_rate:
        print("seconds of the clock (of CPU); score and backward by how far the gradient reaches")
        columns = " ".join(f"{name:>15}" for name in ("write", *_REACHES))
        print(f"threads examples    dtype prefix  rest tokens {columns} GB RSS")
    for threads in arguments.threads:
        for examples in arguments.examples:
            own = ["--line", "--threads", str(threads), "--examples", str(examples)]
            done = subprocess.run([sys.executable, __file__, *sys.argv[1:], *own],
                                  check=True, stdout=subprocess.PIPE)  # fmt: skip
            print(shown(threads, examples, json.loads(done.stdout)), flush=True)


if __name__ == "__main__":
    main()
