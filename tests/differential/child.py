"""Carries out programs with the package of one tree: ``python child.py TREE [MODE]``.

Standard input has programs, one a line, as JSON; standard output gets for each of them its lines as JSON. MODE is a
JSON object with the arguments of `tests.differential.world.Mode`.
"""

import faulthandler
import gc
import json
import os
import sys
from pathlib import Path

OWN = str(Path(__file__).resolve().parents[2])


def main():
    """Import the tree's package and this tree's tests, and carry out what comes."""
    tree = str(Path(sys.argv[1]).resolve())
    sys.path[0] = tree
    import offload

    if Path(offload.__file__).resolve().parents[1] != Path(tree):
        sys.exit(f"the package is that of {offload.__file__}, not of {tree}")
    sys.path[0] = OWN
    import numpy as np

    from tests.differential import acc_steps, data_steps, memory_steps, task_steps  # noqa: F401  # they register operations
    from tests.differential.functions import Table
    from tests.differential.world import Mode, carried_out

    mode, kept = Mode(**json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}), Table()
    np.seterr(all="ignore")
    gc.collect()
    gc.freeze()  # runtimes that leak collect, which then has less to look at
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else is printed among the answers
    for line in sys.stdin:
        faulthandler.dump_traceback_later(300, exit=True)  # a program takes a tenth of a second
        lines = carried_out(json.loads(line), mode, kept)
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(lines) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
