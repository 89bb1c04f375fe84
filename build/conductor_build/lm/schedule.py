"""Which stage an iteration belongs to, and what its learning rate is. Pure.

The warm start and the stages have a schedule each: rising over its first share, then falling along
a cosine (`recipe.Schedule`).
"""

from __future__ import annotations

import math

from conductor_build.lm.recipe import LmRecipe, Stage


def rate(recipe: LmRecipe, done: int) -> float:
    """The learning rate after `done` iterations, steps of the warm start among them."""
    warm = recipe.warm_steps
    if done < warm:
        return recipe.warm_start.learning_rate * _factor(recipe, done, warm)
    return stage_at(recipe, done).objective.learning_rate * factor(recipe, done - warm)


def factor(recipe: LmRecipe, done: int) -> float:
    """What the learning rates of stages are multiplied by, after `done` of their iterations."""
    return _factor(recipe, done, recipe.iterations - recipe.warm_steps)


def _factor(recipe: LmRecipe, done: int, whole: int) -> float:
    schedule = recipe.schedule
    rising = min(1.0, (done + 1) / max(1.0, schedule.warmup * whole))
    falling = (1 + math.cos(math.pi * done / max(1, whole))) / 2
    return rising * (schedule.end + (1 - schedule.end) * falling)


def stage_at(recipe: LmRecipe, done: int) -> Stage:
    """The stage of the iteration after `done`. Raises `IndexError` when there is none."""
    left = done - recipe.warm_steps
    for stage in recipe.stages:
        if left < stage.objective.iterations:
            return stage
        left -= stage.objective.iterations
    raise IndexError("the training has no further iteration")
