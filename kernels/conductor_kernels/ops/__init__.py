"""The ops of a decode step, one file each: reference in plain torch, kernel, launcher, torch op."""
