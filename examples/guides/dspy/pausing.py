"""An agent that is suspended while a refund waits, and resumed in the next process."""

import json
from pathlib import Path

import dspy
from shop import refund, script

from sayso.integrations.dspy import Resumable, Suspended, gate

saved = Path("order-4721.json")
dspy.configure(lm=script(is_resumed=saved.exists()))
agent = Resumable(dspy.ReAct("request -> answer", tools=[gate(refund)]))
try:
    if saved.exists():  # in any process, once somebody has decided
        done = agent.resume(json.loads(saved.read_text()))
    else:
        done = agent("order-4721", request="Order A-4721 was charged twice.")
except Suspended as waits:
    saved.write_text(json.dumps(waits.state))
    print("waits:", waits.id)
else:
    print(done.answer)
