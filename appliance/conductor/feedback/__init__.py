"""What callers say of answers, kept for training: off unless a site turns it on."""
