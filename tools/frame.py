"""What the other tools share: where things are, the environment, the hash of dpteach.

Run as a script it prepares matplotlib's font list, which would otherwise be announced on stderr
in the first cell that draws, and so fail that cell's comparison.
"""

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

__all__ = ["ROOT", "BOOK", "KEPT", "chapters", "environment", "kept_notebook", "notebook_cache",
           "source_hash"]

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
KEPT = ROOT / "tests" / "notebooks"
LIBRARIES = ("numpy", "scipy", "matplotlib", "torch", "dp-accounting", "opacus")


def environment():
    """Environment variables under which cells run: a reader's own settings can't change them.

    Everything written goes to .cache; DPTEACH_CACHE is where training results are kept, so that
    the build, the notebooks' check and the tests read one result.
    """
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    wanted = {
        "DPTEACH_CACHE": cache / "dpteach",
        "MPLCONFIGDIR": cache / "matplotlib",
        "IPYTHONDIR": cache / "ipython",
        "JUPYTER_CONFIG_DIR": cache / "jupyter",
        "JUPYTER_RUNTIME_DIR": cache / "jupyter" / "runtime",
    }
    env = dict(os.environ)
    for name, folder in wanted.items():
        env.setdefault(name, str(folder))
        Path(env[name]).mkdir(parents=True, exist_ok=True)
    # The kernel's own log says on every start that it listens on this machine unencrypted.
    profile = Path(env["IPYTHONDIR"]) / "profile_default" / "ipython_kernel_config.py"
    if not profile.exists():
        profile.parent.mkdir(parents=True, exist_ok=True)
        profile.write_text("get_config().IPKernelApp.log_level = 40\n")
    # The kernel must be this environment's, and compile nothing outside it.
    env.update(JUPYTER_PREFER_ENV_PATH="1", PYTHONNOUSERSITE="1", JUPYTER_PLATFORM_DIRS="1",
               PYDEVD_DISABLE_FILE_VALIDATION="1")
    # Two training threads that wait by spinning take ten times as long when the machine is busy.
    env.setdefault("GOMP_SPINCOUNT", "1000")
    env.pop("MPLBACKEND", None)
    return env


def source_hash(package=ROOT / "dpteach"):
    """Hash of every source and data file of the package: it changes whenever dpteach changes."""
    digest = hashlib.sha256()
    for path in sorted(Path(package).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def notebook_cache():
    """Where chapters that ran are kept: for this version of dpteach, and of the libraries that they
    call."""
    versions = " ".join(f"{name} {version(name)}" for name in LIBRARIES)
    key = hashlib.sha256(f"{source_hash()} {versions}".encode()).hexdigest()[:16]
    folder = ROOT / ".cache" / "notebooks" / key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def chapters():
    """Every page of the book that holds code cells, in the order of their names."""
    return [page for page in sorted(BOOK.rglob("*.md"))
            if "_static" not in page.parts and "```{code-cell}" in page.read_text("utf-8")]


def kept_notebook(chapter):
    """Where the executed notebook of a chapter is kept."""
    return KEPT / (Path(chapter).stem + ".ipynb")


if __name__ == "__main__":
    os.environ.update(environment())
    import matplotlib.font_manager  # noqa: F401  (importing writes the list)
