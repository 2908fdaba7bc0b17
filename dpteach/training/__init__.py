"""Training with noise, in PyTorch: how batches are drawn, gradients clipped and noise added (chapters 14 to 16, 19).

Imports torch; nothing at the top of the package imports this part.
"""

from dpteach.training.loop import (
    Evaluation,
    Training,
    accuracy,
    evaluation_steps,
    noisy_step,
    recorded,
    train,
    train_mnist,
    update,
)

__all__ = [
    "Evaluation", "Training", "accuracy", "evaluation_steps", "noisy_step", "recorded", "train", "train_mnist",
    "update",
]  # fmt: skip
