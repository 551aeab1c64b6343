#!/usr/bin/env python3
"""Time other implementations of E74's cell, of the kernel catalogue's rows, of attention and of
products with quantised weights, on the tensors of a dump of run-ablation.

Each peer gets the inputs and upstream gradients that the dump holds, in its storage type.
Its outputs and gradients are compared with the oracle's (ref64 in the dump), by
max|a-b| / max|b|; a peer that is further off than the bound is WRONG and gets no time.
Where the dump has the oracle's results for a sample of rows only (judge = sampled), they are
compared there, and a result that no sample covers is not: the title of the trial says so.

Time is GPU time: CUDA graph replay, L2 flushed before each, median.
What launching adds, from a stream and with the host waiting, stands in a column of its own.
What a graph cannot capture is timed by the sum of its kernels in torch.profiler.

Exit status: 0 good, 1 a peer was wrong or failed, 2 bad input.
"""
import argparse
import sys
import warnings

from peers import PEERS, BadInput, chosen_peers, installed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", metavar="DUMP.h5")
    parser.add_argument("--trial", type=int, action="append", metavar="N",
                        help="only this one; may be repeated")
    parser.add_argument("--peers", type=lambda text: text.split(","), metavar="A,B,..",
                        help="only these: " + ", ".join(peer.name for peer in PEERS))
    parser.add_argument("--repeats", type=int, default=30, metavar="N", help="timed runs (30)")
    parser.add_argument("--no-times", action="store_true", help="compare, and time nothing")
    parser.add_argument("--tsv", action="store_true",
                        help="one tab-separated record a line; all else goes to stderr")
    return parser.parse_args()


def main():
    options = arguments()
    try:
        peers = chosen_peers(options.peers)
        if options.repeats < 1:
            raise BadInput("--repeats must be at least 1")
        for package in ("h5py", "torch"):
            if not installed(package):
                print(f"nothing can be compared: {package} is not there")
                return 0
        import h5py
        import comparison
        warnings.filterwarnings("ignore", category=UserWarning)
        try:
            file = h5py.File(options.dump, "r")
        except OSError as error:
            raise BadInput(f"cannot be opened: {str(error).splitlines()[0]}") from None
        with file:
            good = comparison.run(file, peers, options.trial,
                                  0 if options.no_times else options.repeats, options.tsv)
        return 0 if good else 1
    except BadInput as error:
        print(f"run_peers.py: {options.dump}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
