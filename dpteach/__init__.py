"""dpteach: the package under the book *The Privacy of Noisy SGD: derived, run and checked*.

At its top is the theory, a module for each part of the book; each module's first line names its
chapters. Below are `numerics` (the engine room), `training` (torch) and `classroom` (exercises,
figures, recorded numbers), which nothing at the top needs.

>>> run = NoisySGD.for_epochs(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3)
>>> round(account(run, "add-remove")["tensor-power"].epsilon(1e-5), 3)
0.865
"""

from dpteach.accountants import account
from dpteach.calibration import calibrate
from dpteach.report import statement
from dpteach.run import NoisySGD

__all__ = ["NoisySGD", "account", "calibrate", "statement"]
__version__ = "2.0.0"
