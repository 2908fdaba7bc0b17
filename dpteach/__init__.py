"""dpteach: the privacy of noisy SGD, written to be read beside the book's formulas."""

__version__ = "0.1.0"
