"""dpteach: the readable package under the book *The Privacy of Noisy SGD: derived, run and checked*.

Start with `dpteach.run.NoisySGD` (what was run) and `dpteach.accountants.account` (what it guarantees).
Arrows point one way: laws → run → guarantees → moments, limits, … → accountants → command line.
"""

__version__ = "1.0.0"
