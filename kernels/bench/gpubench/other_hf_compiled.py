"""transformers with a cache of fixed size and a forward compiled by torch.compile, as its guide to
speed has it: batch 1 alone, since compiling takes most of the time."""

from __future__ import annotations

import torch

from gpubench.asked import asked, prompts, tell
from gpubench.hfmodel import model_of


def main() -> None:
    """One row."""
    one = asked()
    model = model_of(one)
    ids = torch.tensor(prompts(one, 1), device=model.device)

    def write(count: int) -> None:
        model.generate(
            ids,
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            cache_implementation="static",
        )
        torch.cuda.synchronize()

    tell(one, "generate, static cache, torch.compile, bfloat16", 1, write)


if __name__ == "__main__":
    main()
