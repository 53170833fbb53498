"""The values that travel between layers. Standard library only.

Everything here is frozen, holds plain data, and survives a round trip through JSON.
Durations carry their unit in the name. None means "not measured".
"""

from __future__ import annotations

from launchscope.model.adoption import *  # noqa: F403
from launchscope.model.comparison import *  # noqa: F403
from launchscope.model.gate import *  # noqa: F403
from launchscope.model.launching import *  # noqa: F403
from launchscope.model.profile import *  # noqa: F403
from launchscope.model.ranks import *  # noqa: F403
from launchscope.model.reason import *  # noqa: F403
from launchscope.model.recording import *  # noqa: F403
from launchscope.model.shown import *  # noqa: F403
from launchscope.model.timeline import *  # noqa: F403
