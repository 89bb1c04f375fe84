"""transformers' `generate`, plain: no grammar, no cached prefix, a cache that grows."""

from __future__ import annotations

import torch

from gpubench.asked import asked, prompts, tell
from gpubench.hfmodel import model_of


def main() -> None:
    """One row a batch."""
    one = asked()
    model = model_of(one)
    for batch in one.batches:
        ids = torch.tensor(prompts(one, batch), device=model.device)

        def write(count: int, ids: torch.Tensor = ids) -> None:
            model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False)
            if ids.is_cuda:
                torch.cuda.synchronize()

        tell(one, "generate, eager, bfloat16", batch, write)


if __name__ == "__main__":
    main()
