"""Foreign traces: does launchscope say something believable about traces that nobody here made?

The sample is 81 trace files from 20 public repositories: recordings with device work,
at most three per family, of A100, B200, B300, GH200, GP100,
H100, V100, T4, GeForce, MI210, MI250, MI300 and MTIA, from torch.profiler and Nsight Systems.
`sample.json` says where each file is and what was left out and why. The files are not in this
repository.

`facts.json` has what a program that shares no code with launchscope counted in each file (json,
sqlite3 and numpy alone; `oracle.py` of commit 54b05b09).
`judged.json` has what a person made of these facts and of the events: what the step is, which
verdicts a believable report may have, and how much of the step a graph could remove. It was written
before launchscope read any of the files, and it does not change with what launchscope says.

    python -m tests.benchmarks.foreign.obtain FOLDER
    python -m tests.benchmarks.foreign FOLDER --output tests/benchmarks/results/foreign.json

The first command needs git and the network, the second neither.
"""
