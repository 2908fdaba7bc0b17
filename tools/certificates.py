"""Make the certificates of the book's three runs: ε at two δ, under both relations.

    python tools/certificates.py               # all six, in dpteach/classroom/data
    python tools/certificates.py --verify      # prove those that are kept
    python tools/certificates.py A             # one run

Chapter 11 says what a certificate proves; `dpteach.verify` proves it without the package.
"""

import json
import sys
import time
from pathlib import Path

from dpteach.certificate import certify, proofs
from dpteach.run import RELATIONS, NoisySGD

FOLDER = Path(__file__).resolve().parents[1] / "dpteach" / "classroom" / "data"
RUNS = {"A": (1.3, 15), "B": (1.1, 60), "C": (0.7, 45)}  # sigma, epochs
DELTAS, WIDTH = (1e-5, 1e-8), 5e-4


def the_run(name, relation):
    """Run A, B or C with its sigma read in the relation's own unit."""
    sigma, epochs = RUNS[name]
    make = {"add-remove": NoisySGD.abadi16, "replace-one": NoisySGD.drs22}[relation]
    return make(n=60000, batch_size=256, epochs=epochs, sigma=sigma)


def path(name, relation):
    return FOLDER / f"certificate-{name.lower()}-{relation}.json"


def main(arguments):
    names = [name for name in arguments if name in RUNS] or list(RUNS)
    for name in names:
        for relation in RELATIONS:
            start = time.process_time()
            if "--verify" in arguments:
                for proof in proofs(path(name, relation)):
                    print(f"run {name}:", proof.sentence)
            else:
                found = certify(the_run(name, relation), relation, DELTAS, width=WIDTH)
                text = json.dumps(found, separators=(",", ":"))
                path(name, relation).write_text(text + "\n", encoding="utf-8")
                print(f"run {name}, {relation}: {len(text)} bytes")
            print(f"  {time.process_time() - start:.1f} s of processor time")


if __name__ == "__main__":
    main(sys.argv[1:])
