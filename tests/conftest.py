"""What all tests share: the environment that cells run in, and what nbval leaves out."""

import os

from frame import environment

os.environ.update(environment())

# Pictures aren't kept in the notebooks (nbval itself leaves out PNG, but not SVG).
NOT_COMPARED = ("image/svg+xml", "image/png", "image/jpeg", "text/html")


def pytest_collection_modifyitems(items):
    for item in items:
        parent = item.parent
        if hasattr(parent, "skip_compare") and "image/svg+xml" not in parent.skip_compare:
            parent.skip_compare = (*parent.skip_compare, *NOT_COMPARED)
