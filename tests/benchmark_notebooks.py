"""Seconds that each notebook takes from top to bottom: `python tests/benchmark_notebooks.py [01 02 ...]`.

Each runs in a kernel of its own, on one thread, as it comes and with the other pairs of H and D. Figures are printed,
never asserted: about 30 seconds each, and five minutes for one pass over all, is what a class can wait for.
"""

import argparse
import os
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).resolve().parent.parent


def seconds(path: Path, values: dict[str, int]) -> float:
    """Run one notebook, with these parameters in the place of its own, and return how long it took."""
    notebook = nbformat.read(path, as_version=4)
    at = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    notebook.cells.insert(at + 1, new_code_cell("\n".join(f"{name} = {value}" for name, value in values.items())))
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    begin = time.perf_counter()
    client.execute()
    return time.perf_counter() - begin


def main() -> None:
    """Print a row for each notebook, and the sum of each column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", help="such as 01 02; all without")
    parser.add_argument("--pairs", nargs="*", default=["2,8", "5,4"], help="other values of H,D")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings = [{}, *({"H": int(H), "D": int(D)} for H, D in (pair.split(",") for pair in chosen.pairs))]
    paths = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    paths = [p for p in paths if not chosen.numbers or p.stem[:2] in chosen.numbers]
    sums = [0.0] * len(settings)
    print(f"{'seconds':28}", *(f"{', '.join(f'{k}={v}' for k, v in s.items()) or 'as it comes':>12}" for s in settings))
    for path in paths:
        took = [seconds(path, values) for values in settings]
        sums = [a + b for a, b in zip(sums, took, strict=True)]
        print(f"{path.stem:28}", *(f"{s:12.1f}" for s in took), flush=True)
    print(f"{'all':28}", *(f"{s:12.1f}" for s in sums))


if __name__ == "__main__":
    main()
