"""Where Chromium and its driver are: on the path, or where two environment variables say."""

import os
import shutil

__all__ = ["find", "missing"]

NAMES = {
    "DPTEACH_CHROMIUM": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "DPTEACH_CHROMEDRIVER": ("chromedriver", "chromium.chromedriver"),
}


def find(variable):
    """Path of the browser (DPTEACH_CHROMIUM) or its driver (DPTEACH_CHROMEDRIVER), or None."""
    if os.environ.get(variable):
        return shutil.which(os.environ[variable])
    return next(filter(None, map(shutil.which, NAMES[variable])), None)


def missing():
    """Why no test can run in a browser, in one line; an empty string when all is there."""
    absent = [f"no {NAMES[variable][0]} found ({variable}={os.environ.get(variable, '')})"
              for variable in NAMES if not find(variable)]
    return "" if not absent else (
        f"browser tests NOT RUN: {' and '.join(absent)}. "
        "On Debian: sudo apt install chromium chromium-driver")
