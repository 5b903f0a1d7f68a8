"""What a store promises about records; a part of `sayso.testing.contract`.

Every test is one fact about the verbs of `sayso.stores.records.RecordVerbs`. Nothing here knows how a store keeps its
records, or what stands in them.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from sayso.model.reviewer import Identity
from sayso.stores.base import Store
from sayso.stores.records import Note, Record
from sayso.testing.scene import Scene, outcomes_of, refusal

_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)
_BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"a": None, "b": [1, 1.5, True, "x", {"c": []}]},
    {"ü\u2028": "\ud800 \x00 ' \" \u202e", "n": -(2**70), "e": 1e300},
)


class RecordContract(Scene):
    """Records: kept, read, swapped, dropped."""

    def keys(self, kind: str = "token", **options: Any) -> list[str]:
        """Return the keys of what `records` finds."""
        return [record.key for record in self.store.records(kind, **options)]

    def test_a_record_comes_back_as_it_was_kept(self) -> None:
        other: Store = self.elsewhere(self.store)
        for n, body in enumerate(_BODIES):
            for due in (None, self.clock() + n * _SECOND + _INSTANT):
                record = Record("token", f"t{n} ü/\u2028'", body, due)
                assert self.store.keep(record)
                assert self.store.record("token", record.key) == other.record("token", record.key) == record
        assert len(self.keys()) == len(_BODIES)  # the second of a key took the first one's place
        other.close()

    def test_a_record_survives_the_store_that_kept_it(self) -> None:
        record = Record("token", "t", {"a": 1}, self.clock())
        self.store.keep(record)
        self.store.keep(Record("token", "gone", {}))
        self.store.drop("token", "gone")
        self.store.close()
        assert list(self.store.records("token")) == [record]

    def test_a_record_is_a_copy_of_what_was_kept(self) -> None:
        body: dict[str, Any] = {"roles": ["finance"], "pair": (1, 2)}
        self.store.keep(Record("token", "t", body))
        body["roles"].append("admin")
        found = self.store.record("token", "t")
        assert found is not None
        found.body["roles"].append("root")
        assert self.store.record("token", "t") == Record("token", "t", {"roles": ["finance"], "pair": [1, 2]})

    def test_a_record_that_was_never_kept_is_none(self) -> None:
        self.store.keep(Record("token", "t", {}))
        assert self.store.record("token", "u") is None
        assert self.store.record("link", "t") is None
        assert self.store.record("token", "\ud800") is None
        assert self.keys("link") == []
        assert not self.store.drop("link", "t")
        assert not self.store.drop("token", "\ud800")

    def test_a_record_that_cannot_be_written_is_refused_and_nothing_is_kept(self) -> None:
        for kind, key in (("", "t"), ("token", ""), ("token", "\ud800")):
            refusal(ValueError, lambda kind=kind, key=key: Record(kind, key, {}))
        refusal(ValueError, lambda: Record("token", "t", {}, self.clock().replace(tzinfo=None)))
        refusal(TypeError, lambda: self.store.keep(Record("token", "t", {"a": object()})))
        refusal(ValueError, lambda: self.store.keep(Record("token", "t", {"a": float("nan")})))
        assert self.keys() == []

    def test_of_eight_who_keep_a_new_record_at_once_one_does(self) -> None:
        records = [Record("seen", "k", {"n": n}) for n in range(8)]
        kept = outcomes_of([partial(self.store.keep, record, only_new=True) for record in records])
        assert sorted(map(str, kept)) == ["False"] * 7 + ["True"]
        assert self.store.record("seen", "k") == records[kept.index(True)]

    def test_of_eight_who_swap_a_record_at_once_one_does(self) -> None:
        before = Record("delivery", "k", {"tries": 0}, self.clock())
        self.store.keep(before)
        after = [Record("delivery", "k", {"tries": n + 1}, self.clock()) for n in range(8)]
        swapped = outcomes_of([partial(self.store.swap, before, record) for record in after])
        assert sorted(map(str, swapped)) == ["False"] * 7 + ["True"]
        assert self.store.record("delivery", "k") == after[swapped.index(True)]

    def test_a_record_that_was_changed_meanwhile_is_not_swapped(self) -> None:
        mine = Record("delivery", "k", {"tries": 0, "of": [1]}, self.clock())
        after = Record("delivery", "k", {"tries": 9}, self.clock())
        for now in (
            None,
            Record("delivery", "k", {"tries": 1, "of": [1]}, self.clock()),
            Record("delivery", "k", {"tries": 0, "of": [1]}, self.clock() + _INSTANT),
            Record("delivery", "k", {"tries": 0, "of": [1]}),
        ):
            if now is not None:
                self.store.keep(now)
            assert not self.store.swap(mine, after)
            assert self.store.record("delivery", "k") == now
        self.store.keep(mine)
        assert self.store.swap(mine, after)
        refusal(ValueError, lambda: self.store.swap(after, Record("delivery", "other", {})))
        assert self.store.record("delivery", "k") == after

    def test_what_is_noted_of_a_record_stands_in_the_journal_where_the_record_was_written(self) -> None:
        def note(event: str) -> Note:
            return Note("run_records", event, Identity("local", "ada"), "cli", {"n": event})

        first, second = Record("token", "t", {"n": 1}), Record("token", "t", {"n": 2})
        assert self.store.keep(first, note=note("kept"))
        assert not self.store.keep(second, only_new=True, note=note("kept twice"))
        assert not self.store.swap(second, first, note=note("swapped first"))
        assert self.store.swap(first, second, note=note("swapped"))
        rows = self.store.journal(run_id="run_records")
        assert [(row.seq, row.event, row.by, row.channel, row.request_id, row.detail) for row in rows] == [
            (1, "kept", "local:ada", "cli", "", '{"n":"kept"}'),
            (2, "swapped", "local:ada", "cli", "", '{"n":"swapped"}'),
        ]
        assert self.store.record("token", "t") == second

    def test_of_eight_who_drop_a_record_at_once_one_does(self) -> None:
        self.store.keep(Record("link", "k", {}))
        dropped = outcomes_of([partial(self.store.drop, "link", "k")] * 8)
        assert sorted(map(str, dropped)) == ["False"] * 7 + ["True"]
        assert self.store.record("link", "k") is None

    def test_records_come_in_the_order_of_their_keys(self) -> None:
        keys = ["a", "a/1", "a0", "B", "b", "ü", "\U0001f600", "z"]
        for key in reversed(keys):
            self.store.keep(Record("token", key, {}))
        self.store.keep(Record("link", "c", {}))
        in_order = sorted(keys)
        assert self.keys() == in_order
        assert self.keys(limit=3) == in_order[:3]
        assert self.keys(after=in_order[2], limit=3) == in_order[3:6]
        assert self.keys(after="zzzz") == in_order[-2:]

    def test_records_that_are_due_come_with_the_longest_due_first(self) -> None:
        now = self.clock()
        for key, due in (("a", now), ("b", now - _SECOND), ("c", now + _INSTANT), ("d", None), ("e", now - _SECOND)):
            self.store.keep(Record("seen", key, {}, due))
        self.store.keep(Record("link", "f", {}, now - _SECOND))
        assert self.keys("seen", due_by=now) == ["b", "e", "a"]
        assert self.keys("seen", due_by=now, limit=2) == ["b", "e"]
        assert self.keys("seen", due_by=now + _INSTANT) == ["b", "e", "a", "c"]
        refusal(ValueError, lambda: self.store.records("seen", due_by=now, after="a"))
