"""What a store promises about slips; a part of `sayso.testing.contract`.

Every test is one fact about the verbs of `sayso.stores.records.SlipVerbs`. Nothing here knows how a store keeps its
slips, or what stands in them.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from sayso.model.reviewer import Identity
from sayso.stores.base import Store
from sayso.stores.records import Note, Slip
from sayso.testing.scene import Scene, outcomes_of, refusal

__all__ = ["SlipContract"]

_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)
_BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"a": None, "b": [1, 1.5, True, "x", {"c": []}]},
    {"ü\u2028": "\ud800 \x00 ' \" \u202e", "n": -(2**70), "e": 1e300},
)


class SlipContract(Scene):
    """Slips: kept, read, swapped, dropped."""

    def keys(self, kind: str = "token", **options: Any) -> list[str]:
        """Return the keys of what `slips` finds."""
        return [slip.key for slip in self.store.slips(kind, **options)]

    def test_a_slip_comes_back_as_it_was_kept(self) -> None:
        other: Store = self.elsewhere(self.store)
        for n, body in enumerate(_BODIES):
            for due in (None, self.clock() + n * _SECOND + _INSTANT):
                slip = Slip("token", f"t{n} ü/\u2028'", body, due)
                assert self.store.keep(slip)
                assert self.store.slip("token", slip.key) == other.slip("token", slip.key) == slip
        assert len(self.keys()) == len(_BODIES)  # the second of a key took the first one's place
        other.close()

    def test_a_slip_survives_the_store_that_kept_it(self) -> None:
        slip = Slip("token", "t", {"a": 1}, self.clock())
        self.store.keep(slip)
        self.store.keep(Slip("token", "gone", {}))
        self.store.drop("token", "gone")
        self.store.close()
        assert list(self.store.slips("token")) == [slip]

    def test_a_slip_is_a_copy_of_what_was_kept(self) -> None:
        body: dict[str, Any] = {"roles": ["finance"], "pair": (1, 2)}
        self.store.keep(Slip("token", "t", body))
        body["roles"].append("admin")
        found = self.store.slip("token", "t")
        assert found is not None
        found.body["roles"].append("root")
        assert self.store.slip("token", "t") == Slip("token", "t", {"roles": ["finance"], "pair": [1, 2]})

    def test_a_slip_that_was_never_kept_is_none(self) -> None:
        self.store.keep(Slip("token", "t", {}))
        assert self.store.slip("token", "u") is None
        assert self.store.slip("link", "t") is None
        assert self.store.slip("token", "\ud800") is None
        assert self.keys("link") == []
        assert not self.store.drop("link", "t")
        assert not self.store.drop("token", "\ud800")

    def test_a_slip_that_cannot_be_written_is_refused_and_nothing_is_kept(self) -> None:
        for kind, key in (("", "t"), ("token", ""), ("token", "\ud800")):
            refusal(ValueError, lambda kind=kind, key=key: Slip(kind, key, {}))
        refusal(ValueError, lambda: Slip("token", "t", {}, self.clock().replace(tzinfo=None)))
        refusal(TypeError, lambda: self.store.keep(Slip("token", "t", {"a": object()})))
        refusal(ValueError, lambda: self.store.keep(Slip("token", "t", {"a": float("nan")})))
        assert self.keys() == []

    def test_of_eight_who_keep_a_new_slip_at_once_one_does(self) -> None:
        slips = [Slip("seen", "k", {"n": n}) for n in range(8)]
        kept = outcomes_of([partial(self.store.keep, slip, only_new=True) for slip in slips])
        assert sorted(map(str, kept)) == ["False"] * 7 + ["True"]
        assert self.store.slip("seen", "k") == slips[kept.index(True)]

    def test_of_eight_who_swap_a_slip_at_once_one_does(self) -> None:
        before = Slip("delivery", "k", {"tries": 0}, self.clock())
        self.store.keep(before)
        after = [Slip("delivery", "k", {"tries": n + 1}, self.clock()) for n in range(8)]
        swapped = outcomes_of([partial(self.store.swap, before, slip) for slip in after])
        assert sorted(map(str, swapped)) == ["False"] * 7 + ["True"]
        assert self.store.slip("delivery", "k") == after[swapped.index(True)]

    def test_a_slip_that_was_changed_meanwhile_is_not_swapped(self) -> None:
        mine = Slip("delivery", "k", {"tries": 0, "of": [1]}, self.clock())
        after = Slip("delivery", "k", {"tries": 9}, self.clock())
        for now in (
            None,
            Slip("delivery", "k", {"tries": 1, "of": [1]}, self.clock()),
            Slip("delivery", "k", {"tries": 0, "of": [1]}, self.clock() + _INSTANT),
            Slip("delivery", "k", {"tries": 0, "of": [1]}),
        ):
            if now is not None:
                self.store.keep(now)
            assert not self.store.swap(mine, after)
            assert self.store.slip("delivery", "k") == now
        self.store.keep(mine)
        assert self.store.swap(mine, after)
        refusal(ValueError, lambda: self.store.swap(after, Slip("delivery", "other", {})))
        assert self.store.slip("delivery", "k") == after

    def test_what_is_noted_of_a_slip_stands_in_the_journal_where_the_slip_was_written(self) -> None:
        def note(event: str) -> Note:
            return Note("run_slips", event, Identity("local", "ada"), "cli", {"n": event})

        first, second = Slip("token", "t", {"n": 1}), Slip("token", "t", {"n": 2})
        assert self.store.keep(first, note=note("kept"))
        assert not self.store.keep(second, only_new=True, note=note("kept twice"))
        assert not self.store.swap(second, first, note=note("swapped first"))
        assert self.store.swap(first, second, note=note("swapped"))
        rows = self.store.journal(run_id="run_slips")
        assert [(row.seq, row.event, row.by, row.channel, row.request_id, row.detail) for row in rows] == [
            (1, "kept", "local:ada", "cli", "", '{"n":"kept"}'),
            (2, "swapped", "local:ada", "cli", "", '{"n":"swapped"}'),
        ]
        assert self.store.slip("token", "t") == second

    def test_of_eight_who_drop_a_slip_at_once_one_does(self) -> None:
        self.store.keep(Slip("link", "k", {}))
        dropped = outcomes_of([partial(self.store.drop, "link", "k")] * 8)
        assert sorted(map(str, dropped)) == ["False"] * 7 + ["True"]
        assert self.store.slip("link", "k") is None

    def test_slips_come_in_the_order_of_their_keys(self) -> None:
        keys = ["a", "a/1", "a0", "B", "b", "ü", "\U0001f600", "z"]
        for key in reversed(keys):
            self.store.keep(Slip("token", key, {}))
        self.store.keep(Slip("link", "c", {}))
        in_order = sorted(keys)
        assert self.keys() == in_order
        assert self.keys(limit=3) == in_order[:3]
        assert self.keys(after=in_order[2], limit=3) == in_order[3:6]
        assert self.keys(after="zzzz") == in_order[-2:]

    def test_slips_that_are_due_come_with_the_longest_due_first(self) -> None:
        now = self.clock()
        for key, due in (("a", now), ("b", now - _SECOND), ("c", now + _INSTANT), ("d", None), ("e", now - _SECOND)):
            self.store.keep(Slip("seen", key, {}, due))
        self.store.keep(Slip("link", "f", {}, now - _SECOND))
        assert self.keys("seen", due_by=now) == ["b", "e", "a"]
        assert self.keys("seen", due_by=now, limit=2) == ["b", "e"]
        assert self.keys("seen", due_by=now + _INSTANT) == ["b", "e", "a", "c"]
        refusal(ValueError, lambda: self.store.slips("seen", due_by=now, after="a"))
