"""The corpus: does launchscope measure scripts that nobody here wrote?

Scripts of public repositories run unmodified, on synthetic data, under `launchscope profile`.
`sample.json` has, for each, the repository and commit, the command, the data that it looks for and
the packages that it needs; and which scripts were left out and why. The sample was chosen by
reading the scripts and by running them alone, before any of them ran under launchscope. The scripts
are not in this repository.

    python -m tests.benchmarks.corpus.obtain FOLDER
    python -m tests.benchmarks.corpus.campaign FOLDER RESULTS
    python -m tests.benchmarks.corpus.accuracy RESULTS tests/benchmarks/results/by_hand.json

The first command needs git and the network, the second a GPU and no network; the third makes the
table, which holds verdicts against captures that were made by hand. `results/corpus.md` is the
table of all scripts, some of them checked by hand (`table.py` and `checked.json` of commit
8a67470f).
"""
