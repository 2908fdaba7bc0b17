#!/bin/sh
# Finds a Python of at least 3.11 and hands over to install.py. $PYTHON, when set, is taken as it is.
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
if [ -n "$PYTHON" ]; then
    if ! "$PYTHON" -c "$new_enough" 2>/dev/null; then
        echo "PYTHON=$PYTHON isn't a Python of version 3.11 or newer." >&2
        exit 1
    fi
    exec "$PYTHON" tools/install.py
fi
for candidate in .venv/bin/python python3.13 python3.12 python3.11 python3 python; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$new_enough" 2>/dev/null; then
        exec "$candidate" tools/install.py
    fi
done
echo "No Python of version 3.11 or newer was found." >&2
if command -v python3 >/dev/null 2>&1; then
    echo "python3 here is $(python3 --version 2>&1), which is too old." >&2
fi
echo "Install one (https://www.python.org/downloads/), or name it: make book PYTHON=/path/to/python3.12" >&2
exit 1
