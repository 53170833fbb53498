"""The corpus: does launchscope measure scripts that nobody here wrote?

Scripts of public repositories run unmodified, on synthetic data, under `launchscope profile`.
`sample.json` has, for each, the repository and commit, the command, the data that it looks for and
the packages that it needs; and which scripts were left out and why. The sample was chosen by
reading the scripts and by running them alone, before any of them ran under launchscope. The scripts
are not in this repository.

    python -m tests.benchmarks.corpus.obtain FOLDER
    python -m tests.benchmarks.corpus FOLDER RESULTS --at-once 8
    python -m tests.benchmarks.corpus FOLDER RESULTS_OF_RANKS --ranks 2
    python -m tests.benchmarks.corpus.table RESULTS tests/benchmarks/results/corpus.json
    python -m tests.benchmarks.corpus.campaign FOLDER BY_HAND
    python -m tests.benchmarks.corpus.accuracy BY_HAND tests/benchmarks/results/by_hand.json

The first command needs git and the network, the others but the tables need GPUs and no network. The
last two compare verdicts with captures that were made by hand. `--plain` of the second runs the
scripts without launchscope, to see that they work by themselves; most of them need no GPU for that.
"""
