"""Links of the book's text: `make links` asks every external address once and lists those that don't answer.

Not part of the tests: the network, and other people's servers, aren't ours.
"""

import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1", re.M | re.S)
EXTERNAL = re.compile(r"https?://[^\s)>\"'`}\]]+")


def local_links(page):
    """Relative paths that a Markdown page links to or shows, without anchors; code is left out."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    paths = [link.split("#")[0] for link in found if not re.match(r"[a-z]+:|#", link)]
    return [path for path in paths if path]


def external_links():
    """Every external address in the text and the bibliography."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md"), *(ROOT / "book").glob("*.bib")]
    return sorted({link.rstrip(".,;") for page in pages for link in EXTERNAL.findall(page.read_text(encoding="utf-8"))})


def trouble(address):
    """Why an address doesn't answer, or an empty string."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=20):
            return ""
    except urllib.error.HTTPError as error:  # publishers refuse programs; the page itself is there
        return "" if error.code in (401, 403, 405, 406, 418, 429) else f"status {error.code}"
    except (OSError, ValueError) as error:
        return str(error)


def main():
    addresses = external_links()
    with ThreadPoolExecutor(8) as pool:
        dead = [(address, why) for address, why in zip(addresses, pool.map(trouble, addresses), strict=True) if why]
    for address, why in dead:
        print(f"{address}: {why}")
    print(f"{len(addresses) - len(dead)} of {len(addresses)} links answer")
    sys.exit(bool(dead))


if __name__ == "__main__":
    main()
