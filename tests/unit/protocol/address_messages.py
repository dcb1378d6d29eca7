"""Messages that name hosts and that the package does not have: ``describe_cluster``, ``share_fetch``
and ``share_acknowledge``, made of the definitions next to this file as the package's messages are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

from tools.generate_protocol import TEST_APIS, message_module
from tools.kafka_definitions import Definitions, snake

_FILE = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
_DEFINITIONS = Definitions(_FILE["version"], {one["name"]: one for one in _FILE["files"]})


def _made(api: str) -> ModuleType:
    module = ModuleType(f"{__name__}.{snake(api)}")
    sys.modules[module.__name__] = module
    exec(compile(message_module(_DEFINITIONS, api), module.__name__, "exec"), vars(module))
    return module


describe_cluster, share_fetch, share_acknowledge = map(_made, TEST_APIS)
