"""A view in a garbage cycle: what is cleared first must not matter (CPython crashed on a memoryview
that was).
"""

from __future__ import annotations

import subprocess
import sys

from tests.support.sources import ROOT

SCRIPT = """
import gc
from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.primitives import Reader
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView

class Holder: pass

def cycle(make):
    held = memoryview(bytearray(40))  # the oldest of the cycle is cleared first
    holder = Holder()
    holder.held = held
    try:
        holder.view = make(held)
    except ProtocolError as error:
        holder.view = error  # its traceback holds what was being read
    holder.me = holder

gc.disable()
for make in (
    Reader,
    lambda data: ProduceRequestView(data),
    lambda data: ProduceResponseView(data, 3),
    lambda data: messages.ProduceRequest.parse(data),
    lambda data: messages.ProduceResponse.decode(data, 9),
):
    for _ in range(200):
        cycle(make)
    gc.collect()
print("alive")
"""


def test_views_die_in_any_order() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "alive\n", "")
