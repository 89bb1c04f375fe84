"""What runs a language-model conductor: runners, and the ops that they are made of."""
