"""The values that travel between layers. Standard library only.

Everything here is frozen, holds plain data, and survives a round trip through JSON.
Durations carry their unit in the name. None means "not measured".
"""

from __future__ import annotations

# ruff: noqa: F403 - every public name of these modules is one of the model's
from launchscope.model.adoption import *
from launchscope.model.comparison import *
from launchscope.model.gate import *
from launchscope.model.optimizers import *
from launchscope.model.profile import *
from launchscope.model.ranks import *
from launchscope.model.reason import *
from launchscope.model.recording import *
from launchscope.model.target import *
from launchscope.model.timeline import *
