"""ctrlrun, holdpoint and call4agents around two functions, each as its own documentation shows, on its SQLite file."""

from __future__ import annotations

import importlib
import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.contrast.drivers.plain import WRONG
from benchmarks.contrast.subject import Call, NotApplicable, Subject

NO_EDITS = NotApplicable("it has no edits")
A_METHOD = NotApplicable("a decision is a method that is called, and takes no value")


class Peer(Subject):
    """A library with a file of its own; the program makes its call again, in the same run."""

    def saved(self, call: Call, run: str, ticket: Any) -> Any:
        return {"run": run, "tool": call.tool, "arguments": call.arguments, "ticket": ticket}

    def altered_by(self, statement: str) -> None:
        """Let somebody who can write its file say that a decision was made."""
        connection = sqlite3.connect(self.folder / "peer.db")
        with connection:
            connection.execute(statement)
        connection.close()


class Ctrlrun(Peer):
    """A policy that asks for an approval of each call; the call is made again under the approval's id."""

    def __init__(self, folder: Path, effect: str | None = None) -> None:
        super().__init__(folder, effect)
        self.ctrlrun: Any = importlib.import_module("ctrlrun")
        named = "" if effect is None else f'    effect: "{effect}"\n'
        actions = "".join(f"  {tool}:\n{named}    rules:\n      - decision: approve\n" for tool in ("refund", "payout"))
        policy = folder / "ctrlrun.yaml"
        policy.write_text(f"schema: ctrlrun.policy/v2\nactions:\n{actions}", encoding="utf-8")
        self.store = self.ctrlrun.SQLiteStateStore(folder / "peer.db")
        self.control = self.ctrlrun.Control(self.ctrlrun.Policy.from_file(policy), self.store)

    def call(self, saved: Any) -> None:
        @self.ctrlrun.protect(saved["tool"], control=self.control)
        def pay(order_id: str, amount: str) -> str:
            return getattr(self.tools, saved["tool"])(order_id, float(amount))

        with self.ctrlrun.context(agent="clerk"):  # it takes no floats
            pay(saved["arguments"]["order_id"], str(saved["arguments"]["amount"]))

    def ask(self, call: Call, run: str) -> Any:
        saved = self.saved(call, run, None)
        try:
            self.call(saved)
        except self.ctrlrun.ApprovalRequired as held:
            saved["ticket"] = held.request_id
        return saved

    def decide(self, saved: Any, decision: str) -> Any:
        if decision != "approve":
            raise NO_EDITS if decision == "edit" else A_METHOD
        self.store.grant_approval(saved["ticket"], "ada")
        return saved["ticket"]

    def forge(self, saved: Any) -> Any:
        later = "strftime('%Y-%m-%dT%H:%M:%S', 'now', '+1 day') || '.000Z'"
        self.altered_by(
            f"UPDATE approvals SET status = 'granted', approver = 'ada', granted_at = created_at, expires_at = {later}"
        )
        return saved["ticket"]

    def resume(self, saved: Any, answer: Any) -> None:
        with self.ctrlrun.with_approval(answer):
            self.call(saved)


class Holdpoint(Peer):
    """The reviewer approves without executing, and a worker drains the queue after having recovered it."""

    def __init__(self, folder: Path, effect: str | None = None) -> None:
        super().__init__(folder, effect)
        holdpoint: Any = importlib.import_module("holdpoint")
        self.hold = holdpoint.HoldPoint(store=holdpoint.SQLiteStore(str(folder / "peer.db")))
        named = {} if effect is None else {"dedup_key": lambda payload: effect.format(**payload)}
        self.guarded = {
            tool: self.hold.guard(kind=tool, ttl="24h", **named)(getattr(self.tools, tool))
            for tool in ("refund", "payout")
        }

    def ask(self, call: Call, run: str) -> Any:
        return self.saved(call, run, self.guarded[call.tool](**call.arguments).id)

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "no":
            raise A_METHOD
        changes = {"patch": {"amount": WRONG}} if decision == "edit" else {}
        self.hold.approve(saved["ticket"], actor="ada", execute=False, **changes)
        return saved["ticket"]

    def forge(self, saved: Any) -> Any:
        self.altered_by("UPDATE actions SET status = 'approved', decided_by = 'ada'")
        return saved["ticket"]

    def resume(self, saved: Any, answer: Any) -> None:
        if answer is not None and answer != saved["ticket"]:
            raise NotApplicable("a call is decided by its own id, and the program presents nothing")
        self.hold.recover()
        self.hold.drain()


class Call4agents(Peer):
    """A ticket for the exact call is decided, and the call, made again in its run, spends the approval."""

    def __init__(self, folder: Path, effect: str | None = None) -> None:
        super().__init__(folder, effect)
        self.c4a: Any = importlib.import_module("call4agents")
        self.c4a.init(str(folder / "peer.db"))
        self.effects = {
            tool: self.c4a.effect(getattr(self.tools, tool), approval=True, name=tool) for tool in ("refund", "payout")
        }

    def ask(self, call: Call, run: str) -> Any:
        with self.c4a.run(run):
            return self.saved(call, run, self.c4a.pause(self.effects[call.tool], **call.arguments))

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NO_EDITS
        with suppress(ValueError):  # it takes `approve` and `deny`
            self.c4a.decide(saved["ticket"], decision, by="ada")
        return saved["ticket"]

    def forge(self, saved: Any) -> Any:
        self.altered_by(
            "INSERT INTO entries (run_id, kind, key, payload, t) SELECT run_id, 'approval', run_id || char(0) ||"
            " json_extract(payload, '$.tool'), payload, t FROM entries WHERE kind = 'pause'"
        )
        return saved["ticket"]

    def resume(self, saved: Any, answer: Any) -> None:
        with self.c4a.run(saved["run"]):
            print(json.dumps(self.effects[saved["tool"]](**saved["arguments"])))
