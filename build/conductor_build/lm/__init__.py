"""The language-model conductor: a causal language model that learns to write plans."""
