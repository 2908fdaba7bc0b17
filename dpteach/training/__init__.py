"""Training with noise, in PyTorch: how batches are drawn, gradients clipped and noise added (chapters 14 to 16, 19).

Imports torch; nothing at the top of the package imports this part. In the order of reading:
`sampling` draws a batch; `records` says what data may be; `pieces` and `formulas` are gradients of one
layer, `engines` those of a model; `hypotheses` refuses what the proof doesn't cover; `clipping` is the
sum of a batch; `options`, `preparation` and `checkpoint` are what stands around the `loop`; then
`distributed`, and `mnist`, the data.
"""

from dpteach.training.loop import (
    Evaluation,
    Training,
    accuracy,
    evaluation_steps,
    facts_of_step,
    noisy_gradients,
    noisy_step,
    train,
    update,
)

__all__ = [
    "Evaluation", "Training", "accuracy", "evaluation_steps", "facts_of_step", "noisy_gradients", "noisy_step", "train",
    "update",
]  # fmt: skip
