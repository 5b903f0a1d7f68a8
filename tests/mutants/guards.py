"""The guards of the core, one mutant for each: its text, what stands there without it, the test that must turn red.

The text stands exactly once in its file (`tests/project/test_mutants_list.py` keeps it so). A guard that gets a mutant
here names the one test that explains best why it is there, which need not be the only one that notices. Run them with
`make mutants`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """A guard taken away.

    Attributes:
        guard: What the guard is for, in a few words.
        file: Where it stands, below `src/sayso`.
        old: Its text.
        new: What stands there instead.
        test: The test that must turn red, below `tests`.
    """

    guard: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = [
    # -- undo -------------------------------------------------------------------------------------------------------
    Mutant(
        "an approval that can be undone starts nothing", "model/lifecycle.py",
        "if held_until is not None and now < held_until:", "if False:",
        "stores/test_contract.py::TestMemory::test_an_approval_starts_nothing_while_it_can_be_undone",
    ),
    Mutant(
        "nobody undoes what another approved", "model/lifecycle.py",
        "if not by.is_same(undone.by):", "if False:",
        "stores/test_contract.py::TestMemory::test_an_approval_that_is_undone_waits_again_and_starts_nothing",
    ),
    Mutant(
        "what could have started is not undone", "model/lifecycle.py",
        "if undone.held_for is None or now >= undone.at + undone.held_for:", "if undone.held_for is None:",
        "stores/test_contract.py::TestMemory::test_nothing_is_undone_that_was_not_held_back_or_no_longer_is",
    ),
    # -- the key, the effect and the result -------------------------------------------------------------------------
    Mutant(
        "a key finds its request", "stores/program.py",
        "known = tx.keyed(request.run_id, key)", "known = tx.holder(request.fingerprint)",
        "stores/test_contract.py::TestMemory::test_a_key_finds_its_request_in_every_state",
    ),
    Mutant(
        "what no person looked at does not run where the gate wants one by now", "gates/call.py",
        "if lack is None and under is not None and (gate.always or is_held):", "if False:",
        "gates/test_needs.py::test_what_no_person_has_looked_at_is_asked_anew_where_the_gate_wants_one_now",
    ),
    Mutant(
        "what a person said of a call counts, whatever its rule says by then", "gates/call.py",
        "request = yield from asked_before(gate, store, arguments, occasion, verdict, waited)", "request = None",
        "gates/test_block.py::test_what_was_said_of_a_call_that_waits_counts_though_its_rule_lets_it_through_by_then",
    ),
    Mutant(
        "a key finds its request, whatever the rule says by then", "gates/gate.py",
        "request = yield from asked_before(gate, where, given, occasion, verdict)", "request = None",
        "promises/test_14_a_key_is_asked_once.py::test_14_what_a_key_was_asked_for_does_not_run_again_where_the_rule_lets_it_through_by_now",
    ),
    Mutant(
        "a response counts, whatever the rule says by then", "gates/outcome.py",
        "if occasion.adopted else None", "if False else None",
        "confirmation/test_confirmation.py::test_response_counts_though_the_rule_lets_the_call_through_by_then",
    ),
    Mutant(
        "an agent's call made again has its answer", "integrations/agenthooks/handoff.py",
        " or _was_sent_away(host, event, options):", ":",
        "integrations/hooks/test_agent_hooks.py::test_a_call_made_again_has_its_answer_though_the_rules_let_it_through_by_then",
    ),
    Mutant(
        "an approval in memory is not there once more in a forked child", "stores/memory.py",
        "        self._content = MemoryTables()", "        self._content = self.__dict__.get('_content') or MemoryTables()",
        "gates/test_fork.py::test_a_store_in_memory_begins_empty_in_a_child",
    ),
    Mutant(
        "a start by hand takes the effect that was asked for", "gates/held.py",
        "gate = under_record(self._gate, request, self._occasion)", "gate = self._gate",
        "gates/test_held.py::test_an_edit_that_moves_the_effect_is_not_started_where_the_rule_does_not_name_it_any_more",
    ),
    Mutant(
        "a key that was used for another call is refused", "stores/program.py",
        "        lifecycle.must_be_same(known, request)", "        pass",
        "stores/test_contract.py::TestSqlite::test_a_key_is_refused_for_other_arguments_and_for_another_kind",
    ),
    Mutant(
        "what a key finds is held to the journal", "stores/program.py",
        "        if not tx.verify(known):", "        if False:",
        "promises/test_14_a_key_is_asked_once.py::test_14_a_result_that_was_altered_is_not_given_to_who_asks_again",
    ),
    Mutant(
        "a key stands in the fingerprint", "model/ids.py",
        "if key is not None:", "if False:",
        "stores/test_contract.py::TestMemory::test_two_keys_are_two_requests_of_one_call",
    ),
    Mutant(
        "a result is the one that was recorded", "stores/program.py",
        "if text is None or lifecycle.kept_digest(text) != execution.kept:", "if text is None:",
        "promises/test_14_a_key_is_asked_once.py::test_14_a_result_that_was_altered_is_not_given_to_who_asks_again",
    ),
    Mutant(
        "a start looks who else has its effect", "stores/program.py",
        "same = () if request.effect is None else tx.with_effect(request.effect)", "same = ()",
        "promises/test_15_an_effect_starts_once.py::test_15_an_effect_starts_once_across_runs_and_processes",
    ),
    Mutant(
        "a token starts once", "model/lifecycle.py",
        "(before.token == token or not", "(not",
        "stores/test_contract.py::TestMemory::test_a_token_starts_once_whatever_the_gate_allows",
    ),
    Mutant(
        "an effect that may have happened is taken", "model/lifecycle.py",
        "elif other.state in _TAKEN or", "elif other.state is State.RUNNING or",
        "stores/test_contract.py::TestMemory::test_an_effect_is_taken_while_an_earlier_request_may_still_have_it",
    ),
    Mutant(
        "an earlier open request has its effect", "model/lifecycle.py",
        "(is_earlier and other.state in _OPEN and not is_due(other, now)):", "False:",
        "stores/test_contract.py::TestMemory::test_an_effect_is_taken_while_an_earlier_request_may_still_have_it",
    ),
    Mutant(
        "again needs a reason", "model/lifecycle.py",
        "if not is_no and not decision.again:", "if not is_no:",
        "stores/test_contract.py::TestMemory::test_an_effect_starts_again_where_a_reviewer_says_so_with_a_reason",
    ),
    Mutant(
        "all of a quorum say that an effect may happen again", "model/lifecycle.py",
        "edited is not None or any(vote.again is not decision.again for vote in votes)", "edited is not None",
        "stores/test_contract.py::TestMemory::test_again_begins_the_count_of_a_quorum_anew",
    ),
    Mutant(
        "an altered request frees no effect", "stores/sqlite_transaction.py",
        "if not verify_cached(one, self._seal):\n                raise codec", "if False:\n                raise codec",
        "promises/test_15_an_effect_starts_once.py::test_15_a_request_that_was_altered_frees_no_effect",
    ),
    Mutant(
        "the journal says, too, who has an effect", "stores/sqlite_transaction.py",
        "r.effect_digest = ?1 OR r.id IN (", "r.effect_digest = ?1 OR 0 AND r.id IN (",
        "promises/test_15_an_effect_starts_once.py::test_15_a_request_whose_effect_was_altered_is_found_by_the_journal",
    ),
    Mutant(
        "a write that changed no row is an error", "stores/sqlite_transaction.py",
        "                if self._is_fresh:\n                    raise errors.StoreC", "                if False:\n                    raise errors.StoreC",
        "stores/test_altered.py::test_a_write_that_the_file_does_not_take_is_refused_in_words",
    ),
    Mutant(
        "a message quotes the program only where its gate allows it", "channels/registry.py",
        "summary=escape(request.summary) if may_tell and request.summary", "summary=escape(request.summary) if request.summary",
        "channels/test_outbox.py::test_a_message_carries_no_argument_prompt_context_or_comment",
    ),
    # -- who starts, and who ends -----------------------------------------------------------------------------------
    Mutant(
        "only an approved call is started", "model/lifecycle.py",
        "if (request.state is not State.APPROVED and not again) or is_spent:",
        "if request.state is State.PENDING:",
        "promises/test_02_one_approval_starts_once.py::test_2_one_approval_starts_its_call_at_most_once",
    ),
    Mutant(
        "a start that was looked into is the last one", "server/api/program.py",
        "by=message.worker, seen=request))", "by=message.worker))",
        "stores/test_http_starts.py::test_a_start_that_was_looked_into_before_another_is_not_given_out",
    ),
    Mutant(
        "what a grant lets through is no answer of a person", "server/api/program.py",
        "decision.under is None and ", "",
        "stores/test_http_starts.py::test_what_a_grant_or_a_budget_lets_through_is_no_answer_of_a_person",
    ),
    Mutant(
        "what a hook found out is of one start", "model/lifecycle.py",
        "if token is not None and token != execution.token:", "if False:",
        "gates/test_again.py::test_what_a_hook_found_out_of_one_start_says_nothing_of_a_later_one",
    ),
    Mutant(
        "a call whose end is broken off is unknown", "gates/call.py",
        "            yield StoreCall(store.finish, request.id, start.token, outcome, None)\n        raise", "            pass\n        raise",
        "gates/test_outcomes.py::test_call_whose_end_is_broken_off_before_it_is_recorded_is_unknown",
    ),
    Mutant(
        "only the last token ends a call", "model/lifecycle.py",
        "execution.token != token or ", "",
        "model/test_lifecycle.py::test_only_the_last_token_ends_a_call",
    ),
    Mutant(
        "an outcome stands", "model/lifecycle.py",
        " or request.state not in {State.RUNNING, State.UNKNOWN}:", ":",
        "model/test_lifecycle.py::test_a_final_state_never_changes",
    ),
    Mutant(
        "an unknown outcome is not retried", "model/lifecycle.py",
        "again = request.state is State.UNKNOWN and request.idempotent", "again = request.state is State.UNKNOWN",
        "model/test_lifecycle.py::test_retries_give_no_start_after_an_unknown_outcome",
    ),
    Mutant(
        "retries are counted", "model/lifecycle.py",
        "execution.attempt <= request.retries", "request.retries > 0",
        "model/test_lifecycle.py::test_a_failed_call_has_the_starts_that_the_gate_gives_it",
    ),
    Mutant(
        "a spent approval is not found again", "model/lifecycle.py",
        'state, holds = _ENDS[outcome.state], outcome.state == "unknown"', "state, holds = _ENDS[outcome.state], True",
        "model/test_lifecycle.py::test_a_spent_approval_no_longer_holds_and_an_unknown_one_does",
    ),
    Mutant(
        "only an unknown outcome is resolved", "model/lifecycle.py",
        "if (request.state is not State.UNKNOWN and not is_forced) or execution is None:", "if execution is None:",
        "model/test_lifecycle.py::test_there_is_this_way_and_no_other",
    ),
    Mutant(
        "what is running is not withdrawn", "model/lifecycle.py",
        " or request.state in {State.RUNNING, State.UNKNOWN}:", ":",
        "stores/test_contract.py::TestMemory::test_a_program_takes_back_what_it_asked_and_forgets_a_no",
    ),
    # -- ends -------------------------------------------------------------------------------------------------------
    Mutant(
        "the end of a request is too late", "model/lifecycle.py",
        "return now >= request.expires_at", "return now > request.expires_at",
        "model/test_lifecycle.py::test_an_end_that_is_reached_is_too_late",
    ),
    Mutant(
        "an approval has an end", "model/lifecycle.py",
        "return request.approval_expires_at is not None and now >= request.approval_expires_at", "return False",
        "promises/test_06_everything_expires.py::test_6_everything_expires_and_nothing_into_an_approval",
    ),
    Mutant(
        "what expired is not found again", "model/lifecycle.py",
        "state=State.EXPIRED, holds=False", "state=State.EXPIRED",
        "stores/test_contract.py::TestMemory::test_a_no_holds_and_a_spent_approval_does_not",
    ),
    Mutant(
        "an end is looked at before each change", "stores/transaction.py",
        "ended = lapsed(request, now) if request.escalation is not None or lifecycle.is_due(request, now) else None", "ended = None",
        "stores/test_contract.py::TestMemory::test_an_approval_can_be_started_until_its_end_and_not_at_it",
    ),
    Mutant(
        "asking again after the end asks anew", "stores/program.py",
        "expired = None if held is None else lifecycle.expire(held, tx.now())", "expired = None",
        "stores/test_contract.py::TestMemory::test_asking_again_after_the_end_asks_anew",
    ),
    # -- people -----------------------------------------------------------------------------------------------------
    Mutant(
        "the requester does not decide", "model/lifecycle.py",
        "if by.is_same(request.requester) or (acts_for and any(", "if (acts_for and any(",
        "model/test_lifecycle.py::test_who_asked_cannot_decide",
    ),
    Mutant(
        "nor whoever it acts for", "model/lifecycle.py",
        "or (acts_for and any(by.may_be(person) for person in acts_for)):", ":",
        "promises/test_04_the_requester_cannot_decide.py::test_4_the_requester_cannot_decide_its_own_request",
    ),
    Mutant(
        "nor says how its call ended", "model/lifecycle.py",
        "if roles is not None:", "if False:",
        "model/test_lifecycle.py::test_who_asked_cannot_care_for_the_request_either",
    ),
    Mutant(
        "a person is barred whoever vouches for the name", "model/reviewer.py",
        "if mine == theirs:\n            return True", "if mine == theirs:\n            return self.is_same(other)",
        "gates/test_acting_for.py::test_person_is_barred_under_whatever_name_it_may_be",
    ),
    Mutant(
        "a run that has ended bars nobody", "gates/scope.py",
        "_acting.pop(scope, None)", "pass",
        "gates/test_acting_for.py::test_nobody_is_barred_any_more_when_the_runs_have_ended",
    ),
    Mutant(
        "what was asked for less is asked anew", "gates/scope.py",
        "if request.quorum is not self.quorum and not request.quorum.covers(self.quorum):", "if False:",
        "gates/test_needs.py::test_request_that_was_asked_for_less_is_closed_and_asked_anew",
    ),
    Mutant(
        "what is asked anew asks for no less", "gates/scope.py",
        "        return self._replace(\n            quorum=", "        return self\n        return self._replace(\n            quorum=",
        "gates/test_needs.py::test_what_is_asked_anew_asks_for_no_less_than_what_it_replaces",
    ),
    Mutant(
        "the start is held to what the gate allows", "gates/call.py",
        "escalation=request.escalation, retries=gate.retries,", "escalation=request.escalation,",
        "gates/test_needs.py::test_start_that_only_the_record_allows_is_not_executed",
    ),
    Mutant(
        "the start looks at the needs again", "gates/call.py",
        "    lack = wanted.lack_of(request)\n    if lack is not None:\n        raise errors.Altered", "    lack = None\n    if lack is not None:\n        raise errors.Altered",
        "gates/test_needs.py::test_call_is_not_executed_by_an_approval_that_lacks_what_it_needs",
    ),
    Mutant(
        "a call that blocks without a named run finds no earlier decision", "gates/scope.py",
        "return Occasion(_OneCall(), self.open_calls, self.occasion.acts_for, has_name=False)", "return self.occasion",
        "gates/test_pool_threads.py::test_what_was_decided_before_counts_for_no_call_that_blocks_outside_of_a_named_run",
    ),
    Mutant(
        "nothing is asked that nobody can come back to", "gates/call.py",
        "if wanted.pool is not None:", "if False:",
        "gates/test_pool_threads.py::test_a_call_that_raises_is_refused_in_a_pools_thread_and_told_to_name_the_run",
    ),
    Mutant(
        "Ctrl-C ends a wait in a thread of a thread", "gates/threads.py",
        ', ("asyncio.runners", "close")}', "}",
        "gates/test_ctrl_c.py::test_ctrl_c_ends_a_program_whose_thread_waits",
    ),
    Mutant(
        "nobody is asked at a terminal over which a program draws", "gates/notices.py",
        "os.isatty(sys.stderr.fileno())", "sys.stderr.isatty()",
        "gates/test_terminal_turns.py::test_nobody_is_there_where_a_program_draws_over_the_terminal",
    ),
    Mutant(
        "Ctrl-C does not say of a withdrawn call that it waits", "gates/notices.py",
        "return [left] if is_withdrawn else _still_waits", "return _still_waits",
        "gates/test_ctrl_c.py::test_ctrl_c_withdraws_the_call_of_a_tool_and_says_so",
    ),
    Mutant(
        "a pool's thread whose job is not found is a pool's", "gates/threads.py",
        "if strange is not None:", "if False:",
        "gates/test_pool_threads.py::test_a_pools_thread_counts_as_one_though_its_job_is_not_found",
    ),
    Mutant(
        "a pool's thread is at another caller's job", "gates/scope.py",
        "if owner.process != os.getpid() or owner.is_over:", "if owner.process != os.getpid():",
        "gates/test_pool_threads.py::test_a_try_that_is_left_is_the_callers_own",
    ),
    Mutant(
        "leaving a run ends its waits", "gates/scope.py",
        'scope.end("its run was left while it waited")', "pass",
        "gates/test_waits_end.py::test_leaving_a_named_run_ends_its_waits_and_leaves_the_requests_to_the_next_process",
    ),
    Mutant(
        "what nobody waits for does not start", "gates/wait.py",
        "if self.reason is not None:\n                self.raise_if_ended(request)\n            self._has_begun",
        "self._has_begun",
        "promises/test_16_a_decision_reaches_its_call.py::"
        "test_16_a_decision_reaches_only_the_call_that_asked_for_it_and_still_waits",
    ),
    Mutant(
        "a named run's request waits for its next process", "gates/wait.py",
        "or not is_random(request.run_id):", "or False:",
        "gates/test_waits_end.py::test_a_thread_whose_task_was_cancelled_in_a_named_run_leaves_the_request_pending",
    ),
    Mutant(
        "what is stored while its program goes is withdrawn", "gates/signals.py",
        "yield from withdraw(store, request.id, why, error)", "pass",
        "gates/test_waits_end.py::test_a_task_that_is_cancelled_while_its_request_is_stored_withdraws_it",
    ),
    Mutant(
        "what was shown is what runs", "gates/call.py",
        "call.masked is None or is_as_shown(gate, call, call.masked)", "True",
        "gates/test_shown.py::test_call_that_was_shown_as_another_one_does_not_run",
    ),
    Mutant(
        "nothing changes while a rule is awaited", "gates/hooks.py",
        "if asked.has_moved:", "if False:",
        "gates/test_moving_arguments.py::test_call_that_changed_while_an_async_rule_decided_does_not_run",
    ),
    Mutant(
        "a call fits its own types", "gates/options.py",
        "if problems := schema.misfits(arguments):", "if False:",
        "gates/test_proposed.py::test_argument_that_does_not_fit_its_own_type_is_refused_before_it_is_held",
    ),
    Mutant(
        "a role is needed", "model/lifecycle.py",
        "if not request.admits(by, roles):", "if False:",
        "model/test_lifecycle.py::test_a_role_is_needed_for_everything_that_a_reviewer_does",
    ),
    Mutant(
        "a claim keeps others out", "model/lifecycle.py",
        "or request.claimed_at is None or by.is_same(claimer):", "or True:",
        "model/test_lifecycle.py::test_a_claim_keeps_others_out_until_it_is_released",
    ),
    Mutant(
        "a claim keeps one approval of a quorum for the claimer", "model/lifecycle.py",
        "is_vote and request.missing_votes > 1", "is_vote and request.missing_votes > 0",
        "model/test_lifecycle.py::test_a_claim_keeps_one_approval_of_a_quorum_and_leaves_the_others",
    ),
    Mutant(
        "others do not change a claimed call", "model/lifecycle.py",
        'verb == "approve" and edited is None and not has_grant', 'verb == "approve" and not has_grant',
        "model/test_lifecycle.py::test_a_claim_keeps_one_approval_of_a_quorum_and_leaves_the_others",
    ),
    Mutant(
        "others give no grant for a claimed call", "model/lifecycle.py",
        'edited is None and not has_grant', 'edited is None',
        "stores/test_contract.py::TestMemory::test_others_give_no_grant_while_a_call_is_claimed",
    ),
    Mutant(
        "a shared view is changed by who shared it or by a lead", "server/pages/views.py",
        "    if known is not None and not _may_change(context, known, is_shared=is_shared):", "    if False:",
        "server/test_views.py::test_a_shared_view_is_changed_by_who_shared_it_or_by_a_lead",
    ),
    Mutant(
        "a message to one person leaves by the channels that the gate names", "stores/review.py",
        "if row is None or (request.channels and channel not in request.channels):", "if row is None:",
        "channels/test_personal.py::test_a_person_is_told_once_by_the_channels_that_reach_them_and_who_stands_in_too",
    ),
    Mutant(
        "only who stands in is let past a claim", "stores/transaction.py",
        "return claimed if found is not None and found.is_same(person) else None", "return claimed",
        "stores/test_contract.py::TestMemory::"
        "test_who_stands_in_decides_what_is_assigned_to_who_is_away_in_their_own_name",
    ),
    Mutant(
        "a purge leaves alone who is away", "audit/export.py",
        "before=min(before, store.now())", "before=before",
        "audit/test_purge.py::test_absences_that_ended_go_with_a_purge_or_the_next_one_and_the_journal_keeps_them",
    ),
    Mutant(
        "one of two who save a view at once is told", "server/pages/views.py",
        "if not (store.keep(view, only_new=True) if known is None else store.swap(known, view)):", "if store.keep(view) is None:",
        "server/test_views.py::test_of_two_who_save_one_shared_view_at_once_one_wins_and_the_other_is_told",
    ),
    Mutant(
        "test messages to devices are limited", "server/pages/settings.py",
        "        context.count_test()\n", "",
        "server/test_push.py::test_a_person_sends_ten_test_messages_a_minute_to_devices_and_through_channels",
    ),
    Mutant(
        "a delegation ends by the store's clock", "model/reviewer.py",
        "return now < self.until", "return True",
        "stores/test_contract.py::TestMemory::"
        "test_who_stands_in_decides_what_is_assigned_to_who_is_away_in_their_own_name",
    ),
    Mutant(
        "a request is assigned to nobody whom it would refuse", "model/teamwork.py",
        "    must_be_allowed(freed, to, request.wanted_roles if to_roles is None else to_roles, now)\n", "",
        "model/test_lifecycle.py::test_a_request_is_assigned_to_whom_it_would_let_decide_and_by_those_too",
    ),
    Mutant(
        "a request is assigned to nobody who has voted", "model/teamwork.py",
        "if any(to.is_same(vote.by) for vote in request.votes):", "if False:",
        "model/test_lifecycle.py::test_a_request_is_assigned_to_whom_it_would_let_decide_and_by_those_too",
    ),
    Mutant(
        "nobody votes twice", "model/lifecycle.py",
        "if votes and any(vote.by.is_same(decision.by) for vote in votes):", "if False:",
        "model/test_lifecycle.py::test_a_quorum_is_met_by_as_many_distinct_people_as_it_names",
    ),
    Mutant(
        "votes are counted by person", "model/reviewer.py",
        "if not any(voter.is_same(other) for other in distinct):", "if voter not in distinct:",
        "gates/test_guards.py::test_one_person_in_two_spellings_counts_once",
    ),
    Mutant(
        "a full-width letter is the letter", "model/reviewer.py",
        'folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())',
        "folded = text.casefold()",
        "promises/test_05_a_quorum_counts_people.py::test_5_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a name hides nothing", "model/reviewer.py",
        "    if hidden:\n", "    if False:\n",
        "gates/test_guards.py::test_a_name_that_hides_something_names_nobody",
    ),
    # -- decisions --------------------------------------------------------------------------------------------------
    Mutant(
        "an edit begins the count anew", "model/lifecycle.py",
        "if votes and (edited is not None or any(", "if votes and (any(",
        "model/test_lifecycle.py::test_an_edit_resets_the_votes_and_counts_as_one",
    ),
    Mutant(
        "what was looked at is what stands", "model/lifecycle.py",
        "if seen is not None and seen != current:", "if False:",
        "model/test_lifecycle.py::test_what_is_approved_is_what_the_last_voter_saw",
    ),
    Mutant(
        "decided is decided", "model/lifecycle.py",
        'if not (decision.verb == "cancel" and request.state is State.APPROVED):', "if False:",
        "promises/test_07_decided_is_decided.py::test_7_decided_is_decided",
    ),
    Mutant(
        "a running call is not cancelled", "model/lifecycle.py",
        'if not (decision.verb == "cancel" and request.state is State.APPROVED):', 'if decision.verb != "cancel":',
        "model/test_lifecycle.py::test_there_is_this_way_and_no_other",
    ),
    Mutant(
        "a quorum is met before the call is approved", "model/lifecycle.py",
        "    if missing:\n", "    if False:\n",
        "stores/test_contract.py::TestMemory::test_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a question is not approved", "model/lifecycle.py",
        'if request.kind == "question" and verb in {"approve", "feedback"}:', "if False:",
        "model/test_lifecycle.py::test_a_question_takes_no_such_decision",
    ),
    Mutant(
        "an answer fits the question", "reviews/review.py",
        'schema_of(request).fit({"answer": canonical.form_of(value)})', '{"answer": canonical.form_of(value)}',
        "gates/test_guards.py::test_an_answer_that_does_not_fit_decides_nothing",
    ),
    Mutant(
        "what the function's own types refuse does not run", "gates/call.py",
        "    problems = refused_by_types(gate, request, request.edited)\n    if not", "    problems: list[str] = []\n    if not",
        "gates/test_edits.py::test_validators_of_the_program_have_the_last_word_on_an_edit",
    ),
    Mutant(
        "an edit that came back is voted on anew", "model/lifecycle.py",
        "request, state=State.PENDING, edited=None, votes=(), decision=None,", "request, state=State.PENDING, edited=None, decision=None,",
        "gates/test_edits.py::test_an_edit_that_came_back_begins_its_votes_and_its_time_anew",
    ),
    Mutant(
        "nothing is fetched for a reference", "model/schema_validation.py",
        '"offline": True,', '"offline": False,',
        "model/test_foreign_schema.py::test_no_reference_is_ever_fetched",
    ),
    Mutant(
        "alternatives do not multiply", "model/schema_validation.py",
        "if max(total, len(known)) > MOST_STEPS:", "if False:",
        "model/test_foreign_schema.py::test_a_call_whose_schema_would_take_for_ever_to_check_is_not_asked",
    ),
    Mutant(
        "an object of a class that checks itself is not built without its code", "model/json_convert.py",
        'if self._builds and "x-sayso-code" in node:', "if False:",
        "model/test_schema.py::test_without_the_code_a_class_that_checks_itself_is_passed_on_and_not_built",
    ),
    Mutant(
        "an edit fits the function", "model/edit.py",
        "schema.fit(merged, kept=kept)", "merged",
        "gates/test_weaknesses_of_peers.py::test_edit_is_validated_before_it_counts",
    ),
    Mutant(
        "a mask left as shown is no edit", "model/edit.py",
        "return real[name]", "return value",
        "gates/test_guards.py::test_a_masked_value_that_is_left_as_shown_stays_what_it_is",
    ),
    Mutant(
        "an edited call is masked, too", "model/edit.py",
        'masked = cast("dict[str, Any]", redaction.mask(tree))', "masked = tree",
        "promises/test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    # -- what is asked, and where -----------------------------------------------------------------------------------
    Mutant(
        "None, 0 and '' are no answer of a rule", "policy/verdict.py",
        "    match answer:\n", "    match answer if isinstance(answer, Verdict) else bool(answer):\n",
        "promises/test_08_any_error_means_not_run.py::test_8_any_error_means_not_run",
    ),
    Mutant(
        "a condition of the policy file gives true or false and nothing else", "policy/condition.py",
        "if value is True or value is False:", "if result.type().name() != 'x':",
        "policy/test_condition.py::test_a_value_that_is_no_bool_is_no_answer_though_the_checker_could_not_know",
    ),
    Mutant(
        "no condition judges a NaN", "policy/condition.py",
        " or (type(value) is float and isfinite(value)):", " or type(value) is float:",
        "policy/test_condition.py::test_what_gives_neither_true_nor_false_is_an_error",
    ),
    Mutant(
        "no rule is proposed for other tools", "learning/proposals.py",
        'if "*" in tool:', "if False:",
        "learning/test_learning.py::test_no_rule_is_proposed_for_a_tool_whose_name_would_be_a_pattern",
    ),
    Mutant(
        "a condition that takes too long is no answer", "policy/condition.py",
        'raise UndecidedError("looks at too many values" if is_long else "could not be evaluated") from None', "return True",
        "policy/test_rules.py::test_a_condition_that_takes_too_long_stops_the_call_and_the_replay_goes_on",
    ),
    Mutant(
        "a policy file with a mistake lets nothing through", "policy/file.py",
        "        if self.problems:\n            raise self.error(self.problems)\n        return self\n", "        return self\n",
        "policy/test_gates.py::test_with_a_broken_file_nothing_runs",
    ),
    Mutant(
        "a gate with always= lets nothing through that the policy allows", "gates/hooks.py",
        'if gate.always and verdict.kind == "allow":', 'if False:',
        "policy/test_gates.py::test_always_waits_for_a_person_whatever_the_file_allows",
    ),
    Mutant(
        "what has no room in a budget is held as its rule says", "policy/rules.py",
        'return replace(held, kind="allow", budgets', 'return replace(held, quorum=None, kind="allow", budgets',
        "policy/test_gates.py::test_a_rule_allows_until_its_budget_is_used_up",
    ),
    Mutant(
        "a rule that fails lets nothing through", "gates/hooks.py",
        "refuse(gate, gate.rule, error, arguments)", "return verdict_of(False, gate.rule)",
        "promises/test_08_any_error_means_not_run.py::test_8_any_error_means_not_run",
    ),
    Mutant(
        "what no other process could read is refused", "gates/call.py",
        "canonical.check_round_trip(form, schema.classes)", "pass",
        "gates/test_guards.py::test_a_call_that_no_other_process_could_run_is_refused_when_asked",
    ),
    Mutant(
        "one open request for one call in one run", "stores/program.py",
        "met = held if expired is None else None", "met = None",
        "stores/test_contract.py::TestMemory::test_asking_the_same_in_the_same_run_finds_the_request",
    ),
    Mutant(
        "what was decided from here is found", "gates/call.py",
        "if adopted is not None:", "if False:",
        "gates/test_scope.py::test_pause_of_a_task_is_answered_by_who_awaited_it",
    ),
    Mutant(
        "siblings share nothing", "gates/scope.py",
        "return owner.task is not None and owner.task() is task", "return True",
        "gates/test_scope.py::test_siblings_of_a_parent_with_a_run_share_nothing",
    ),
    Mutant(
        "a child does not grant its parent", "gates/scope.py",
        "return owner.task is not None and owner.task() is task", "return owner.task is None or owner.task() is task",
        "gates/test_scope.py::test_what_a_task_was_granted_is_not_granted_to_the_thread_that_began_it",
    ),
    Mutant(
        "a run is part of the fingerprint", "model/ids.py",
        'else _begun("sayso/run/1", run_id)).copy()', 'else _begun("sayso/run/1")).copy()',
        "gates/test_scope.py::test_other_runs_decide_nothing_here",
    ),
    Mutant(
        "the parts of a digest are framed", "model/ids.py",
        'b"%d:%b" % (len(part), part) for part in parts', "part for part in parts",
        "gates/test_guards.py::test_the_parts_of_a_digest_cannot_be_shifted",
    ),
    Mutant(
        "a tuple is no list", "model/canonical/__init__.py",
        'return {"$tuple": self._items(value)}', "return self._items(value)",
        "model/test_canonical.py::test_different_acts_have_different_digests",
    ),
    Mutant(
        "a dict is no tag", "model/canonical/__init__.py",
        'return {"$dict": members} if is_wrapped else members', "return members",
        "model/test_canonical.py::test_a_golden_vector_is_written_as_it_was",
    ),
    Mutant(
        "keys are texts", "model/canonical/__init__.py",
        "if type(key) is not str:\n", "if False:\n",
        "model/test_canonical.py::test_what_has_no_form_is_refused_by_the_name_of_its_argument",
    ),
    Mutant(
        "depth has an end", "model/canonical/__init__.py",
        "if len(self.path) > LIMIT_DEPTH:", "if False:",
        "model/test_canonical.py::test_what_has_no_form_is_refused_by_the_name_of_its_argument",
    ),
    # -- what runs --------------------------------------------------------------------------------------------------
    Mutant(
        "what runs is the call as it was edited", "model/request.py",
        "        if self.edited is not None:\n            return self.edited\n", "",
        "promises/test_01_what_runs_is_what_was_approved.py::test_1_what_runs_is_what_was_shown_and_approved",
    ),
    Mutant(
        "what runs has the digest that was asked", "gates/call.py",
        "if digest != call.digest or request.fingerprint_of(digest) != approved:", "if False:",
        "gates/test_guards.py::test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "what runs has the fingerprint that was approved", "gates/call.py",
        " or request.fingerprint_of(digest) != approved:", ":",
        "gates/test_guards.py::test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "a call that was broken off is unknown", "gates/outcome.py",
        'state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"',
        'state = "unknown" if attempt.is_ambiguous else "failed"',
        "gates/test_guards.py::test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "Ctrl-C in a call is recorded", "effects.py",
        "except BaseException as error:  # noqa: BLE001  user code; recorded by",
        "except Exception as error:  # noqa: BLE001  user code; recorded by",
        "gates/test_guards.py::test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "an outcome that is not recorded is told", "gates/call.py",
        "raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error", "return",
        "gates/test_guards.py::test_a_call_that_ran_and_could_not_be_recorded_says_so_with_its_result",
    ),
    Mutant(
        "an end taken by hand that is not recorded is told", "gates/call.py",
        "if raised is None or not is_raised:", "if raised is None:",
        "gates/test_held.py::test_an_end_that_could_not_be_recorded_is_told_and_can_be_told_again",
    ),
    # -- stores -----------------------------------------------------------------------------------------------------
    Mutant(
        "a call is running only while its lease is renewed", "stores/program.py",
        "if is_gone or is_lost(request, now, partial(_renewal, tx, request_id)):", "if is_gone:",
        "stores/test_contract.py::TestMemory::test_a_call_whose_lease_was_not_renewed_is_unknown_and_not_started_again",
    ),
    Mutant(
        "a renewed lease counts", "stores/program.py",
        "    return renewal is None or renewal.due is None or now >= renewal.due", "    return True",
        "stores/test_contract.py::TestMemory::test_a_call_whose_lease_was_not_renewed_is_unknown_and_not_started_again",
    ),
    Mutant(
        "a lease is renewed only by who holds the start", "stores/program.py",
        "if execution is None or execution.token != token or execution.resolved_by is not None:", "if execution is None:",
        "stores/test_contract.py::TestMemory::test_only_who_holds_the_start_renews_its_lease",
    ),
    Mutant(
        "a late outcome that contradicts is told", "stores/program.py",
        "        _note_late(tx, request_id, token, outcome)", "        pass",
        "stores/test_contract.py::TestMemory::test_a_late_outcome_changes_nothing_that_a_person_said_and_is_told",
    ),
    Mutant(
        "a call that runs renews its lease", "stores/program.py",
        "            processes.hold(self._whole, request_id, token)", "            pass",
        "stores/test_leases.py::test_a_start_is_held_until_its_end_is_recorded",
    ),
    Mutant(
        "what waits for a place of the worker was not started", "runs/engine.py",
        "        step.attempt.check_going()  # what waited", "        pass  # what waited",
        "runs/test_worker_limits.py::test_what_waits_for_a_place_when_the_worker_is_stopped_was_not_started",
    ),
    Mutant(
        "a worker that lives is not given up", "stores/program.py",
        "execution.worker == gone or processes.is_gone(execution.worker)", "True",
        "stores/test_contract.py::TestMemory::test_a_call_whose_process_lives_stays_running",
    ),
    Mutant(
        "a worker that is gone is given up", "stores/program.py",
        "execution.worker == gone or processes.is_gone(execution.worker)", "False",
        "promises/test_03_an_unknown_outcome_is_not_retried.py::test_3_an_outcome_that_cannot_be_known_is_unknown_and_not_retried",
    ),
    Mutant(
        "a process number that was given out again", "stores/processes.py",
        "(_is_dead(pid) or _is_another(pid, theirs, mine))", "_is_dead(pid)",
        "stores/test_worker_liveness.py::test_process_number_given_out_again_is_not_taken_for_the_dead_worker",
    ),
    Mutant(
        "one verb at a time, in memory", "stores/memory.py",
        "        with self._lock:\n            tables = self._content", "        with threading.RLock():\n            tables = self._content",
        "gates/test_guards.py::test_in_memory_one_verb_ends_before_the_next_begins",
    ),
    Mutant(
        "a refusal is raised, in memory", "stores/memory.py",
        "        if isinstance(result, errors.SaysoError):\n            raise result\n", "",
        "stores/test_contract.py::TestMemory::test_only_an_approved_call_is_started",
    ),
    Mutant(
        "of two starts of one effect the second waits for the first, on Postgres", "stores/postgres_transaction.py",
        '        self._execute(LOCK, (f"effect:{digest}",))\n', "",
        "stores/test_postgres.py::test_a_start_with_an_effect_waits_for_another_one_of_it",
    ),
    Mutant(
        "a start compares all columns of what is remembered, on Postgres", "stores/postgres_transaction.py",
        'is_start = entry.event == "started"', "is_start = False",
        "stores/test_postgres.py::test_a_change_of_any_column_is_found_before_a_start",
    ),
    Mutant(
        "works of one commit overtake nobody who stops everything", "stores/postgres.py",
        "            self._must_be_absent(absent, connection)", "            pass",
        "stores/test_postgres_together.py"
        "::test_who_stops_everything_while_works_share_a_commit_is_not_overtaken_by_them",
    ),
    Mutant(
        "in a shared commit, an answer from memory that nothing has confirmed does not count", "stores/postgres.py",
        "        if not is_sure:\n", "        if False:\n",
        "stores/test_postgres_together.py"
        "::test_what_another_process_changed_meanwhile_costs_the_works_beside_it_nothing",
    ),
    Mutant(
        "in a shared commit, a change that was overtaken is found by its answer", "stores/postgres_transaction.py",
        "                raise Stale\n            known, (n,", "                continue\n            known, (n,",
        "stores/test_postgres_together.py"
        "::test_what_another_process_changed_meanwhile_costs_the_works_beside_it_nothing",
    ),
    Mutant(
        "what was committed on a lost connection is found", "stores/postgres.py",
        "        for tx, result in verb.lost:", "        for tx, result in ():",
        "stores/test_postgres.py::test_what_was_lost_on_its_way_happens_once",
    ),
    Mutant(
        "the clock is the database's", "stores/postgres.py",
        "        if clock.is_replaced():", "        if True:",
        "stores/test_postgres.py::test_the_clock_of_this_machine_does_not_count",
    ),
    Mutant(
        "a place in the chain is taken once", "stores/sqlite_transaction.py",
        "            raise Stale from None", "            return",
        "stores/test_sqlite.py::test_two_stores_that_write_in_one_run_by_turns_leave_one_whole_chain",
    ),
    Mutant(
        "a batch reads again what somebody else could have written", "stores/sqlite_transaction.py",
        "            if version != cache.certain_at:\n", "            if False:\n",
        "server/test_writer.py::test_a_batch_reads_a_request_again_only_where_it_could_be_another",
    ),
    Mutant(
        "a row that was rolled back stands nowhere", "stores/sqlite_transaction.py",
        "        self.heads.clear()\n        self.certain.clear()", "        self.heads.clear()",
        "server/test_writer.py::test_a_batch_reads_a_request_again_only_where_it_could_be_another",
    ),
    Mutant(
        "an approval is looked up again where somebody else wrote", "stores/sqlite_transaction.py",
        "return known.request if seen == self.version else None", "return known.request",
        "stores/test_sqlite.py::test_what_is_remembered_is_not_read_again_and_runs_only_if_it_still_stands",
    ),
    Mutant(
        "a start compares all columns of what is remembered", "stores/sqlite_transaction.py",
        'is_start = transition.event == "started"', "is_start = False",
        "stores/test_sqlite.py::test_no_column_that_was_altered_since_it_was_written_here_is_started",
    ),
    Mutant(
        "a start looks for the newest row of the journal", "stores/sqlite_transaction.py",
        "AND EXISTS (\n    SELECT 1 FROM journal AS j WHERE", "AND NOT EXISTS (\n    SELECT 1 FROM journal AS j WHERE 0 AND",
        "stores/test_sqlite.py::test_no_start_is_given_out_where_the_newest_row_of_the_journal_was_altered",
    ),
    Mutant(
        "a chain goes on from what was committed", "stores/sqlite.py",
        "                self._cache.undone()", "                pass",
        "stores/test_sqlite.py::test_no_chain_goes_on_from_a_row_that_was_rolled_back",
    ),
    Mutant(
        "one statement looks for channels", "stores/sql.py",
        "parts = [f\"NOT EXISTS (SELECT 1 FROM record WHERE kind = ", "parts = [f\"NOT EXISTS (SELECT 1 FROM record WHERE 0 AND kind = ",
        "stores/test_sqlite.py::test_a_channel_that_another_process_registers_is_owed_a_message_at_once",
    ),
    # -- grants, budgets and the stop -------------------------------------------------------------------------------
    Mutant(
        "a grant is kept to its fields", "model/grant.py",
        "if path not in fields or not _holds(condition, fields[path], self.id, path):", "if path not in fields:",
        "stores/test_contract.py::TestMemory::test_a_call_with_other_fields_waits",
    ),
    Mutant(
        "a number is an upper bound", "model/grant.py",
        "return number is not None and 0 <= number <= Decimal(condition.value)", "return number is not None",
        "stores/test_contract.py::TestMemory::test_a_call_with_other_fields_waits",
    ),
    Mutant(
        "a grant is of one version of its tool", "model/grant.py",
        "if request.subject.schema_digest != self.schema_digest:", "if False:",
        "model/test_grant.py::test_a_grant_is_of_exactly_one_version_of_the_tool",
    ),
    Mutant(
        "a grant is of one requester", "model/grant.py",
        "if not request.requester.is_same(self.requester) or request.acts_for != self.acts_for:", "if False:",
        "stores/test_contract.py::TestMemory::test_a_call_of_another_program_or_for_somebody_waits",
    ),
    Mutant(
        "a grant of a run counts in no other", "model/grant.py",
        "if self.run is not None and request.run_id != self.run:", "if False:",
        "stores/test_contract.py::TestMemory::test_a_grant_of_a_run_counts_in_no_other",
    ),
    Mutant(
        "a grant is of one gate", "model/grant.py",
        "if request.risk != self.risk or request.retries > self.retries or request.idempotent is not self.idempotent:", "if False:",
        "stores/test_contract.py::TestMemory::test_a_call_whose_gate_asks_for_more_waits",
    ),
    Mutant(
        "a program's budgets count only where the server's policy allows", "server/api/validation.py",
        """        if budgets and here.kind == "allow":""",
        """        if budgets:""",
        "gates/test_grants.py::test_a_program_on_another_machine_has_the_budgets_that_the_servers_policy_gives",
    ),
    Mutant(
        "whom the server's rule names is asked", "server/api/validation.py",
        "if rule.quorum is not None:", "if False:",
        "gates/test_grants.py::test_what_has_no_room_on_a_server_needs_whom_the_programs_rule_and_the_servers_rule_name",
    ),
    Mutant(
        "a tool that comes back is compared with what it was", "integrations/mcp_gateway/connection.py",
        "before, self.tools = self._gone | self.tools, tools", "before, self.tools = self.tools, tools",
        "integrations/test_mcp_gateway.py::test_a_tool_that_was_removed_and_comes_back_changed_is_told_as_a_changed_one",
    ),
    Mutant(
        "what waits is withdrawn where a client does not read", "integrations/mcp_gateway/connection.py",
        "            self._changed.set()\n            self._gone()\n", "            self._changed.set()\n            os._exit(0)\n",
        "integrations/test_mcp_hostile.py::test_a_client_that_does_not_read_ends_its_session_and_what_waits_is_withdrawn",
    ),
    Mutant(
        "a proxy's address from a header signs nobody in", "server/auth/sign_in.py",
        "if self.is_direct or peer not in", "if True or peer not in",
        "server/test_proxy_sign_in.py::test_a_program_of_the_machine_names_nobody_by_an_address_that_uvicorn_believes",
    ),
    Mutant(
        "a mask under another name does not run as three stars", "model/edit.py",
        "        if new and _hides(masked, original):", "        if False:",
        "model/test_edit.py::test_a_mask_that_was_left_as_it_is_or_moved_never_runs_as_three_stars",
    ),
    Mutant(
        "a mask of an argument that was not given does not run as three stars", "model/edit.py",
        "        if added and any(", "        if False and any(",
        "model/test_edit.py::"
        "test_a_mask_that_was_moved_to_an_argument_that_was_not_given_never_runs_as_three_stars",
    ),
    Mutant(
        "a mask in a value of another kind does not run as three stars", "model/edit.py",
        "    if mentions_mask(edited) and _hides(masked, original):", "    if False:",
        "model/test_edit.py::test_a_mask_that_was_left_as_it_is_or_moved_never_runs_as_three_stars",
    ),
    Mutant(
        "a mask of what a redactor left out stays what it is", "model/edit.py",
        "return unmask(value, real[name], MASK, where=name)", "return value",
        "model/test_edit.py::test_a_mask_that_was_left_as_it_is_or_moved_never_runs_as_three_stars",
    ),
    Mutant(
        "what the server's rule denies is not asked", "server/api/validation.py",
        """if here.kind == "deny":""", "if False:",
        "server/test_policy.py::test_what_the_policy_of_the_server_denies_is_not_asked",
    ),
    Mutant(
        "the server's rule masks what a program says of a call, too", "server/api/validation.py",
        "**{name: redaction.mask_facts(value, secrets) for name, value in words.items()},", "",
        "server/test_policy.py::test_what_a_call_needs_is_the_stricter_of_the_program_and_the_rule_of_the_server",
    ),
    Mutant(
        "a bound of a form counts for a call that was raised in it", "server/pages/grants.py",
        "if not is_as_shown or bound < Decimal(condition.value):", "if not is_as_shown:",
        "server/test_grants.py::test_a_grant_of_a_changed_call_is_never_wider_than_the_bound_that_was_shown",
    ),
    Mutant(
        "values that differ under a mask are not said to be the same", "server/pages/alike.py",
        "return self.is_common and (self.real is None or len(set(map(_encoded, self.real))) == 1)",
        "return self.is_common",
        "server/test_groups.py::test_values_that_differ_under_a_mask_are_not_said_to_be_the_same",
    ),
    Mutant(
        "a guess at a masked value is not counted", "server/pages/grants.py",
        "if terms is not None and not is_guess:", "if terms is not None:",
        "server/test_grants.py::test_nobody_finds_a_masked_value_by_typing_guesses",
    ),
    Mutant(
        "what an edit would change does not say whether a masked value was found", "server/pages/request.py",
        "if name in shown and writes_over(form_of(value), shown[name]):", "if False:",
        "server/test_grants.py::test_nobody_finds_a_masked_value_by_typing_guesses",
    ),
    Mutant(
        "masked values do not say who the same customer is", "server/pages/request.py",
        'and tree != "" and tree == real.get(name)', 'and tree != ""',
        "server/test_together.py::test_earlier_decisions_for_the_same_customer_stand_beside_a_call",
    ),
    Mutant(
        "what was changed is not folded away", "server/pages/arguments.py",
        "branches, _values(tree), is_changed)", "branches, _values(tree), False)",
        "server/test_arguments.py::test_a_part_that_was_changed_is_not_folded",
    ),
    Mutant(
        "a group of high risk arrives not ticked", "server/pages/actions.py",
        "is_table and is_high(group[0].risk)", "False",
        "server/test_groups.py::test_a_group_of_high_risk_arrives_not_ticked_unless_it_is_to_be_rejected",
    ),
    Mutant(
        "each of several is decided as it was shown", "server/pages/actions.py",
        "return review.approve(request_id, comment=note, seen=seen)", "return review.approve(request_id, comment=note)",
        "server/test_groups.py::test_all_but_those_ticked_out_are_decided_as_they_were_shown",
    ),
    Mutant(
        "always means a person", "stores/grants.py",
        'if request.always or request.kind != "call":', 'if request.kind != "call":',
        "stores/test_contract.py::TestMemory::test_a_gate_that_wants_a_person_always_gets_one",
    ),
    Mutant(
        "no grant is drawn from an always gate", "model/grant.py",
        'raise refuse("its gate requires a person for every call (always=True)")', 'pass',
        "stores/test_contract.py::TestMemory::test_no_grant_is_drawn_from_a_gate_that_wants_a_person_always",
    ),
    Mutant(
        "a grant is not made wider than its call", "model/grant.py",
        "if number > Decimal(drawn.value):", "if False:",
        "stores/test_contract.py::TestMemory::test_a_reviewer_may_tighten_a_grant_and_take_fields_out",
    ),
    Mutant(
        "the votes behind a grant meet the quorum", "stores/grants.py",
        "if request.state is State.APPROVED:\n            return found", "if found:\n            return found",
        "stores/test_contract.py::TestMemory::test_a_quorum_of_two_needs_two_people_behind_a_grant",
    ),
    Mutant(
        "nobody agrees to a grant for themselves", "stores/grants.py",
        "if by.is_same(grant.requester) or any(by.may_be(person) for person in grant.acts_for):", "if False:",
        "stores/test_contract.py::TestMemory::test_one_more_person_may_agree_to_a_grant_once",
    ),
    Mutant(
        "nobody agrees to a grant twice", "stores/grants.py",
        "if grant.is_by(by):", "if False:",
        "stores/test_contract.py::TestMemory::test_one_more_person_may_agree_to_a_grant_once",
    ),
    Mutant(
        "nobody agrees to a grant that has ended", "stores/grants.py",
        "one is not None and now < one.until and not one.is_by", "one is not None and not one.is_by",
        "stores/test_contract.py::TestMemory::"
        "test_whoever_grants_the_same_later_agrees_to_the_first_grant_while_it_lasts",
    ),
    Mutant(
        "a grant for another secret has other terms", "model/grant.py",
        "all(_holds(one, fields[path], self.id, path) for path, one in secrets)", "True",
        "stores/test_contract.py::TestMemory::test_a_grant_for_another_secret_is_another_one",
    ),
    Mutant(
        "a start takes from its grant", "stores/grants.py",
        "replace(grant, used=grant.used + 1)", "grant",
        "stores/test_contract.py::TestMemory::test_a_grant_is_used_up_by_its_starts",
    ),
    Mutant(
        "a grant that has ended starts nothing", "stores/grants.py",
        'if row is None:\n        return f"the grant {grant_id} no longer exists"', 'if row is not None:\n        return None\n    if row is None:\n        return f"the grant {grant_id} no longer exists"',
        "stores/test_contract.py::TestMemory::test_a_grant_that_was_revoked_stops_what_has_not_started",
    ),
    Mutant(
        "a grant ends at its end", "stores/grants.py",
        "if now < grant.until:\n        return False", "if True:\n        return False",
        "stores/test_contract.py::TestMemory::test_a_grant_ends_at_its_end_also_for_what_was_approved_before",
    ),
    Mutant(
        "one statement looks for grants", "stores/sqlite_transaction.py",
        "raise Stale\n        self._unread = (*self._unread, kind)\n        return ()", "raise Stale\n        return ()",
        "stores/test_contract.py::TestSqlite::test_a_grant_made_elsewhere_counts_here_at_once",
    ),
    Mutant(
        "a start looks whether starts are stopped", "stores/program.py",
        "        must_not_be_stopped(tx, request)\n", "",
        "stores/test_contract.py::TestMemory::test_a_stop_blocks_what_was_approved_until_starts_go_on",
    ),
    Mutant(
        "a start takes from its grant or budget", "stores/program.py",
        "            take(tx, request, request.decision.under, now)\n", "",
        "stores/test_contract.py::TestMemory::test_a_budget_is_taken_when_the_call_starts",
    ),
    Mutant(
        "failed gives back to a budget", "stores/program.py",
        "    if outcome.not_run:\n        give_back(tx, found)\n", "",
        "stores/test_contract.py::TestMemory::test_only_what_surely_did_not_run_gives_back",
    ),
    Mutant(
        "what failed after its start keeps its part", "stores/program.py",
        "    if outcome.not_run:\n", "    if True:\n",
        "stores/test_contract.py::TestMemory::test_only_what_surely_did_not_run_gives_back",
    ),
    Mutant(
        "only what surely failed gives back", "stores/grants.py",
        "if request.state is State.FAILED and request.decision", "if request.decision",
        "stores/test_contract.py::TestMemory::test_only_what_surely_did_not_run_gives_back",
    ),
    Mutant(
        "what did not happen gives back", "stores/program.py",
        "if isinstance(found, Request):\n        give_back(tx, found)\n", "if isinstance(found, Request):\n        pass\n",
        "stores/test_contract.py::TestMemory::test_an_unknown_call_that_did_not_happen_gives_back",
    ),
    Mutant(
        "a budget has a limit", "stores/grants.py",
        "return None if _sum(takings, amount) <= budget.limit else", "return None if True else",
        "stores/test_contract.py::TestMemory::test_a_call_without_room_waits_for_a_person_who_is_told_why",
    ),
    Mutant(
        "a sum is rounded by no context but its own", "stores/grants.py",
        "reduce(exact.add, (one.amount for one in takings), more)", "sum((one.amount for one in takings), more)",
        "stores/test_contract.py::TestMemory::test_a_budget_is_added_up_to_the_last_digit",
    ),
    Mutant(
        "an amount below zero makes no room", "model/grant.py",
        "return None if amount is None or amount < 0 or amount.adjusted() > _MOST_DIGITS else amount", "return amount",
        "stores/test_contract.py::TestMemory::test_an_amount_that_is_no_number_from_zero_waits",
    ),
    Mutant(
        "a budget rolls over its span", "stores/grants.py",
        "return [one for one in takings if one.at > since]", "return takings",
        "stores/test_contract.py::TestMemory::test_a_budget_has_room_again_when_its_span_has_passed",
    ),
    Mutant(
        "the lock is taken before the first reading", "stores/sqlite.py",
        'connection.execute("BEGIN IMMEDIATE")', 'connection.execute("BEGIN")',
        "gates/test_guards.py::test_nobody_else_can_write_between_a_verbs_reading_and_its_writing",
    ),
    Mutant(
        "what was committed is not done again", "stores/sqlite.py",
        '            is_ready = True\n            connection.execute("COMMIT")',
        '            connection.execute("COMMIT")\n            is_ready = True',
        "stores/test_sqlite.py::test_who_waits_behind_an_interrupted_verb_is_served_once",
    ),
    Mutant(
        "a commit is synced", "stores/sqlite_file.py",
        '"PRAGMA synchronous = FULL"', '"PRAGMA synchronous = NORMAL"',
        "stores/test_sqlite.py::test_every_commit_is_synced",
    ),
    Mutant(
        "the file is its owner's", "stores/sqlite_file.py",
        "os.O_RDWR, 0o600)", "os.O_RDWR, 0o644)",
        "stores/test_sqlite.py::test_only_its_owner_can_read_the_file_and_those_beside_it",
    ),
    Mutant(
        "a forked child begins afresh", "stores/sqlite.py",
        "        self._bell = Bell()\n        self._begin_afresh()\n\n    # -- connections", "        self._bell = Bell()\n\n    # -- connections",
        "gates/test_guards.py::test_a_forked_child_takes_over_no_lock_and_no_connection",
    ),
    Mutant(
        "a thread opens no store while a fork waits", "stores/sqlite_file.py",
        "while _waiting and time.monotonic() < until:", "while False:",
        "stores/test_sqlite_forks.py::test_a_thread_opens_no_store_while_a_fork_waits",
    ),
    Mutant(
        "no connection is open while a process forks", "stores/sqlite_file.py",
        "    if not _taken(_turn, until, releases):\n        return\n", "    return\n",
        "stores/test_sqlite_forks.py::test_what_a_child_commits_stays_when_its_parent_closes_the_file",
    ),
    Mutant(
        "a child whose parent was in the middle of a verb opens no file", "stores/sqlite_file.py",
        "        if _inherited:\n", "        if False:\n",
        "stores/test_sqlite_forks.py::test_the_child_of_a_fork_that_could_not_wait_refuses_its_stores",
    ),
    Mutant(
        "a fork waits for a store that another thread has just opened", "stores/sqlite_file.py",
        "    while _taken(_gate, until, releases) and _live:", "    while _taken(_gate, until, releases) and not paused:",
        "stores/test_sqlite_forks.py::"
        "test_a_process_that_forks_while_its_threads_write_and_open_stores_loses_nothing",
    ),
    Mutant(
        "a fork waits for the imports of other threads", "stores/processes.py",
        "    while _is_importing() and monotonic() < until:", "    while False:",
        "gates/test_fork.py::test_a_fork_waits_for_what_another_thread_imports",
    ),
    Mutant(
        "a fork that is broken off lets its locks go", "stores/sqlite_file.py",
        "    deque(map(call, reversed(_forking.releases.pop())), 0)", "    _forking.releases.pop()",
        "stores/test_sqlite_forks.py::test_a_fork_that_ctrl_c_breaks_off_keeps_no_lock",
    ),
    Mutant(
        "nothing is written to a file that was replaced", "stores/sqlite_file.py",
        "    if file != connection.file:", "    if False:",
        "stores/test_store_beside_others.py::test_a_database_that_was_replaced_or_removed_is_read_anew",
    ),
    Mutant(
        "a folder that changed within a tick is not trusted", "stores/sqlite_file.py",
        "if time.time_ns() - max(changed) > _TICK else None", "if changed else None",
        "stores/test_store_beside_others.py::"
        "test_a_database_that_was_replaced_is_noticed_whenever_its_folder_changed_last",
    ),
    Mutant(
        "a folder whose time was put back has changed", "stores/sqlite_file.py",
        "        changed = found.st_mtime_ns, found.st_ctime_ns", "        changed = (found.st_mtime_ns,)",
        "stores/test_store_beside_others.py::"
        "test_a_database_that_was_replaced_is_noticed_whenever_its_folder_changed_last",
    ),
    Mutant(
        "a link leads to a folder of its own", "stores/sqlite_file.py",
        "    connection.folder = None if os.path.islink(connection.path) else seen", "    connection.folder = seen",
        "stores/test_store_beside_others.py::"
        "test_a_database_that_was_replaced_is_noticed_whenever_its_folder_changed_last",
    ),
    Mutant(
        "nothing is written to a log that was removed", "stores/sqlite_file.py",
        "    if log_file != connection.log_file:", "    if False:",
        "stores/test_store_beside_others.py::test_a_database_whose_log_was_removed_takes_nothing_more",
    ),
    Mutant(
        "a database has one name", "stores/sqlite_file.py",
        "if path.is_file() and found.st_nlink > 1:", "if False:",
        "stores/test_store_beside_others.py::test_two_names_of_one_file_are_one_store_or_refused",
    ),
    Mutant(
        "a file of lines has one lock", "stores/jsonl.py",
        "JsonlFile(Path(os.path.realpath(self._path)))", "JsonlFile(self._path)",
        "stores/test_store_beside_others.py::test_two_names_of_one_file_are_one_store_or_refused",
    ),
    Mutant(
        "a sealed text belongs to its request", "stores/codec.py",
        "    return AESGCM(raw)",
        "    return type('Unbound', (AESGCM,), {name: (lambda self, nonce, text, _, do=getattr(AESGCM, name):"
        " do(self, nonce, text, None)) for name in ('encrypt', 'decrypt')})(raw)",
        "stores/test_seal.py::test_a_sealed_text_cannot_be_moved_to_another_request",
    ),
    Mutant(
        "nothing sealed is read without the key", "stores/codec.py",
        "            if text.startswith(_ANY):", "            if False:",
        "stores/test_sqlite.py::test_without_the_key_nothing_sealed_is_read_or_decided",
    ),
    # -- the journal ------------------------------------------------------------------------------------------------
    Mutant(
        "a link covers its row", "audit/__init__.py",
        "if chained(before, *entry[:-1]).link != entry.link:", "if False:",
        "promises/test_10_every_step_is_recorded.py::test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a request names its last row", "audit/__init__.py",
        "if anchor.link != rows.link:", "if False:",
        "audit/test_audit.py::test_an_end_that_was_cut_off_is_found_while_its_request_is_there",
    ),
    Mutant(
        "a request stands as its last row left it", "audit/__init__.py",
        "if anchor.state not in rows.trail.states:", "if False:",
        "stores/test_altered.py::test_a_state_that_no_row_led_to_shows_also_without_digests",
    ),
    Mutant(
        "a request that has rows is there", "audit/__init__.py",
        "for request_id, trail in missing.items():", "for request_id, trail in ():",
        "audit/test_audit.py::test_a_request_that_was_removed_or_put_back_is_found",
    ),
    Mutant(
        "a link covers the row before", "model/journal.py",
        'f"[{quote(before)},', 'f"[',
        "promises/test_10_every_step_is_recorded.py::test_10_every_step_leaves_a_chained_record",
    ),
    # -- what is shown ----------------------------------------------------------------------------------------------
    Mutant(
        "a secret below a name is masked", "model/redaction.py",
        "            elif isinstance(value, _MAY_HIDE):\n                shown = self.mask(value)\n", "",
        "model/test_redaction.py::test_secret_is_absent_at_every_depth",
    ),
    Mutant(
        "a secret in a list is masked", "model/redaction.py",
        "masked = [self.mask(item) if isinstance(item, _MAY_HIDE) else item for item in items]", "masked = items",
        "promises/test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "the password of a URL is masked", "model/redaction.py",
        "return conceal(tree)", "return tree",
        "model/test_redaction.py::test_password_in_a_url_is_masked_at_every_depth",
    ),
    Mutant(
        "a secret is looked for in any spelling", "model/redaction.py",
        "if kept is None or kept[0] in runs or len(secret.splitlines()) > 1:", "if secret in text:",
        "model/test_redaction.py::test_many_secrets_are_found_in_every_spelling",
    ),
    Mutant(
        "no rule judges a NaN", "gates/hooks.py",
        "lost = nan_in(asked.kwargs)", "lost = None",
        "model/test_nan.py::test_a_rule_lets_no_nan_through",
    ),
    Mutant(
        "what is not known is masked whole", "model/redaction.py",
        "return tree if tag in _SCALARS else MASK", "return tree",
        "model/test_redaction.py::test_tag_that_is_not_known_is_masked_whole",
    ),
    Mutant(
        "a redactor that fails shows nothing", "model/redaction.py",
        "        return dict(FAILED)\n    if inspect", "        return arguments\n    if inspect",
        "model/test_redaction.py::test_redactor_that_fails_shows_a_placeholder_and_never_the_secret",
    ),
    Mutant(
        "the error of a hook quotes no secret", "gates/hooks.py",
        "text = type(error).__name__ if secrets is None else redaction.error_text(error, secrets)",
        'text = f"{type(error).__name__}: {error}"',
        "promises/test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "a pause carries the masked call", "gates/signals.py",
        "return ToolCall(subject.name, subject.arguments)",
        "return ToolCall(subject.name, __import__('json').loads(subject.form))",
        "promises/test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "what moves or hides is written out", "model/text.py",
        "return not character.isprintable() or _BLANK_ONE.match(character) is not None",
        "return _BLANK_ONE.match(character) is not None",
        "promises/test_09_the_reviewer_sees_what_we_draw.py::test_9_the_reviewer_sees_what_we_draw_and_the_agents_words_marked",
    ),
    Mutant(
        "a text cannot write an escape itself", "model/text.py",
        'if text.isprintable() and "<U+" not in text:', "if text.isprintable():",
        "view/test_show.py::test_what_hides_is_written_out",
    ),
    Mutant(
        "what is left to run is not called done", "gates/outcome.py",
        "if left is None:", "if True:",
        "gates/test_outcomes.py::test_a_call_that_returns_what_is_to_run_later_is_not_called_done",
    ),
    Mutant(
        "a run lasts as long as the coroutine that it decorates", "gates/scope.py",
        "if inspect.iscoroutinefunction(function):", "if False:",
        "gates/test_scope.py::test_a_decorated_function_runs_in_the_run_of_its_decorator",
    ),
    Mutant(
        "a task that waits for its turn at the terminal hears what is decided", "gates/wait.py",
        "if is_over and (talk is None or talk.cancel()):", "if is_over and talk is None:",
        "gates/test_block.py::test_tasks_at_a_terminal_take_one_thread_and_hear_what_is_decided_elsewhere_before_their_turn",
    ),
    # -- whose call it is -------------------------------------------------------------------------------------------
    Mutant(
        "a wrapper around a wrapper is compared by what it captures", "gates/captured.py",
        'if entered is not None and function.__dict__.get("__wrapped__") is entered else function', "or function",
        "gates/test_same_name.py::test_what_wraps_the_wrapper_of_a_tool_is_compared_with_what_it_captures",
    ),
    Mutant(
        "functions with other objects are kept apart", "gates/captured.py",
        "if asked is not self and not asked.is_same(self):", "if False:",
        "gates/test_same_name.py::test_function_with_another_object_is_refused_in_one_process",
    ),
    Mutant(
        "options count where gate is called with the function", "gates/gate.py",
        "if function is None else _gated(function, options)",
        'if function is None else _gated(function, {"wait": "raise"})',
        "gates/test_decorator_options.py::test_one_stranger_cannot_approve_what_two_from_finance_must",
    ),
    Mutant(
        "a misspelt option is refused", "gates/options.py",
        "if option not in known:", "if False:",
        "promises/test_13_what_the_author_wrote_holds.py::test_13_each_option_counts_in_each_form_or_is_an_error",
    ),
    # -- what happened in a run, and what is decided in it -----------------------------------------------------------
    Mutant(
        "a start looks at the journal", "stores/transaction.py", "    if not tx.verify(request):\n        return altered(request_id, is_start", "    if False:\n        return altered(request_id, is_start",
        "stores/test_altered.py::test_a_spent_approval_is_not_made_new_by_hand",
    ),
    Mutant(
        "no verb changes a row that was altered", "stores/sqlite_transaction.py",
        "if self._verified is not before and not self.verify(before.request):", "if False:",
        "stores/test_altered.py::test_a_row_that_was_rewritten_is_not_decided_and_shows",
    ),
    Mutant(
        "a row is as its newest row left it", "stores/codec.py",
        "return row_digest_in(newest[1]) == _tied(row_digest, row, seal)", "return True",
        "promises/test_10_every_step_is_recorded.py::"
        "test_10_a_change_of_any_column_of_a_request_is_found_before_its_start",
    ),
    Mutant(
        "what ends a call is compared with the journal", "stores/program.py",
        "    if not tx.verify(request):\n        raise altered(request_id)\n", "",
        "stores/test_altered.py::test_a_result_or_an_answer_that_was_altered_is_not_taken",
    ),
    Mutant(
        "a step comes from where it may", "model/journal.py",
        "if before is not None and not before & self.states:", "if False:",
        "stores/test_altered.py::test_a_step_that_cannot_follow_shows",
    ),
    Mutant(
        "what started is what was approved", "model/journal.py",
        'if event == "started" and _text(read, "fingerprint") != self.approved:', "if False:",
        "stores/test_altered.py::test_a_start_of_another_call_than_the_approved_one_shows",
    ),
    Mutant(
        "what is sent again is not done again", "stores/program.py",
        "if held is not None and held.id == request.id:", "if False:",
        "stores/test_contract.py::TestMemory::test_a_run_is_handed_back_with_the_request_for_which_it_waits",
    ),
    # -- lines of JSON ----------------------------------------------------------------------------------------------
    Mutant(
        "who writes is alone", "stores/jsonl_file.py",
        "fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass",
        "stores/test_jsonl.py::test_who_reads_does_not_wait_for_who_writes_and_a_writer_is_told",
    ),
    Mutant(
        "a line is on the disk before the verb returns", "stores/jsonl_file.py",
        "            _sync(fd)\n        except", "        except",
        "stores/test_jsonl.py::test_what_could_not_be_written_was_not",
    ),
    Mutant(
        "what another process wrote is on the disk before it counts", "stores/jsonl_file.py",
        "                    _sync(fd)\n            else:", "                    pass\n            else:",
        "stores/test_jsonl.py::test_what_another_process_wrote_is_on_the_disk_before_it_counts",
    ),
    Mutant(
        "what was taken back is not built upon", "stores/jsonl_file.py",
        "return os.pread(self._fd, len(end), self._offset - len(end)) != end", "return False",
        "stores/test_jsonl.py::test_what_was_read_and_taken_back_is_read_anew_although_something_as_long_stands_there",
    ),
    Mutant(
        "a line that was altered is refused", "stores/jsonl_file.py",
        "if tail != _tail(link):", "if False:",
        "stores/test_jsonl.py::test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number",
    ),
    Mutant(
        "a link covers the line before", "stores/jsonl_file.py",
        'hashlib.sha256(before.encode("ascii") + body)', "hashlib.sha256(body)",
        "stores/test_jsonl.py::test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number",
    ),
    # -- Confirms that programs write by hand --------------------------------------------------------------------------
    Mutant(
        "an error that says nothing about its effect is unknown",
        "gates/outcome.py",
        'state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"',
        'state = "unknown" if not isinstance(attempt.raised, Exception) else "failed"',
        "gates/test_ambiguous_outcomes.py::test_a_timeout_reaches_the_caller_with_a_note_and_is_recorded_as_unknown",
    ),
    Mutant(
        "not executed is believed before anything else",
        "gates/outcome.py",
        "if key in met or name == _NOT_EXECUTED:",
        "if key in met:",
        "gates/test_ambiguous_errors.py::test_not_executed_says_no_whatever_it_was_raised_from",
    ),
    # -- keys and effects ----------------------------------------------------------------------------------------------
    Mutant(
        "a key finds no other call", "gates/outcome.py",
        "if found.subject.digest != digest():", "if False:",
        "gates/test_held.py::test_a_key_with_other_arguments_or_another_tool_is_refused",
    ),
    Mutant(
        "a key needs a run that can be found again", "gates/hooks.py",
        "if not occasion.has_name:", "if False:",
        "gates/test_held.py::test_a_key_needs_a_run_with_a_name",
    ),
    Mutant(
        "a start takes the effect of its arguments", "gates/call.py",
        "if effect != request.effect:\n        raise", "if False:\n        raise",
        "gates/test_held.py::test_a_start_takes_no_effect_but_the_one_of_its_arguments",
    ),
    Mutant(
        "an edit that moves the effect goes back", "gates/call.py",
        "problems = [] if effect == request.effect else", "problems = [] if True else",
        "gates/test_held.py::test_an_edit_of_a_gated_function_that_moves_the_effect_goes_back_and_spends_no_approval",
    ),
    Mutant(
        "a keyed request that was asked for less stays", "gates/call.py",
        "    if request.key is not None:\n        raise errors.KeyReusedError", "    if False:\n        raise errors.KeyReusedError",
        "gates/test_held.py::test_a_gate_that_asks_for_more_than_a_keyed_request_leaves_it_as_it_is",
    ),
    Mutant(
        "a call does not wait for itself", "gates/wait.py",
        "if any(running.id == request_id for running in scope.executing.get()):", "if False:",
        "gates/test_held.py::test_a_call_that_asks_for_its_own_result_is_refused",
    ),
    Mutant(
        "a call that a rule allows runs once", "gates/held.py",
        "        if running is not mine:\n", "        if False:\n",
        "gates/test_held.py::test_tasks_that_ask_the_handle_of_an_allowed_call_run_it_once",
    ),
    Mutant(
        "no key and no effect shows a secret", "gates/hooks.py",
        "if redaction.scrub(text, secrets) != text:", "if False:",
        "gates/test_held.py::test_a_key_or_an_effect_that_would_show_a_secret_is_refused",
    ),
    # -- runs --------------------------------------------------------------------------------------------------------
    Mutant(
        "what waits is saved after what led to it", "runs/state.py",
        "        while self._on_their_way:\n", "        while False:\n",
        "runs/test_checkpoints.py::test_what_waits_is_not_asked_before_that_which_led_to_it_is_saved",
    ),
    Mutant(
        "a step that was not saved is saved later", "runs/state.py",
        "        self._unsaved |= steps or {}\n", "        pass\n",
        "runs/test_checkpoints.py::test_what_was_not_saved_goes_into_the_next_one_in_its_order",
    ),
    Mutant(
        "a run whose end is not saved is no success", "runs/runnable.py",
        "    if unsaved is not None and state is RunState.ENDED:\n", "    if False:\n",
        "runs/test_guards.py::test_a_run_whose_end_is_not_saved_is_no_success",
    ),
    Mutant(
        "a value for a no is made once", "runs/engine.py",
        'and runnable.on_reject != "raise":\n        return known', "and False:\n        return known",
        "runs/test_call_options.py::test_on_reject_is_asked_once_for_a_no",
    ),
    Mutant(
        "a call of a handler starts only while the resolution counts that approved it", "gates/gate.py",
        "return self.recalled is not None and self.recalled.is_over(request)", "return False",
        "runs/test_ends.py::test_a_decision_that_ends_before_a_call_of_a_handler_starts_does_not_count",
    ),
    Mutant(
        "why a program takes a call back quotes no secret of it", "model/lifecycle.py",
        "reason = None if reason is None else without_secrets(request, reason)", "pass",
        "gates/test_secrets.py::test_what_a_program_says_of_a_call_that_it_holds_by_hand_is_scrubbed",
    ),
    Mutant(
        "a start that is refused for good is not asked for again and again", "gates/call.py",
        "if isinstance(refusal, errors.AlreadyStartedError) and after == request:", "if False:",
        "stores/test_http_starts.py::test_a_gate_that_gets_no_further_start_says_so_and_does_not_try_for_ever",
    ),
    Mutant(
        "a pipe is no settings file", "config.py",
        "if not stat.S_ISREG(found.st_mode):", "if False:",
        "test_config.py::test_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for",
    ),
    Mutant(
        "a key counts in all places of its run", "runs/engine.py",
        "    if request is None and gate.key is not None:\n", "    if False:\n",
        "runs/test_call_options.py::test_a_step_that_met_the_key_of_another_one_is_not_made_again_after_a_pause",
    ),
    # -- ids ---------------------------------------------------------------------------------------------------------
    Mutant(
        "an id has 128 random bits", "model/ids.py",
        "os.urandom(16).hex()", "os.urandom(8).hex()",
        "promises/test_12_ids_are_random.py::test_12_ids_are_random_and_knowing_one_gives_no_right",
    ),
    # -- a program and its server -----------------------------------------------------------------------------------
    Mutant(
        "a field that a program's message does not have is refused", "stores/http_messages.py",
        'ConfigDict(extra="forbid", strict=True, frozen=True)', 'ConfigDict(extra="ignore", strict=True, frozen=True)',
        "stores/test_http_attacks.py::test_a_program_says_nothing_of_state_decision_or_time",
    ),
    Mutant(
        "what a program shows people is what would run", "server/api/validation.py",
        "    if not agrees(shown, tree):", "    if False:",
        "stores/test_http_attacks.py::test_a_view_that_is_not_the_call_is_refused",
    ),
    Mutant(
        "the server masks what a program does not mask", "server/api/validation.py",
        "masked = _redaction(tuple(redact)).mask(shown)", "masked = shown",
        "stores/test_http_attacks.py::test_a_secret_that_the_program_does_not_mask_is_masked_by_the_server",
    ),
    Mutant(
        "a program's filter is short enough for every store", "server/api/program.py",
        "if any(text is not None and len(text) > _MAX_SEARCHED for text in texts):", "if False:",
        "stores/test_http_attacks.py::test_a_filter_that_no_store_can_search_for_is_refused",
    ),
    Mutant(
        "a program leaves no run as running", "server/api/program.py",
        "if update.left is RunState.RUNNING:", "if False:",
        "stores/test_http_attacks.py::test_a_run_that_nobody_holds_is_not_left_as_running",
    ),
    Mutant(
        "one token leaves threads of the server to the others", "server/protection.py",
        "CapacityLimiter(2 * most)", "CapacityLimiter(most)",
        "server/test_api_input.py::test_a_token_that_takes_all_of_its_slots_leaves_threads_to_the_others",
    ),
    Mutant(
        "a server that limits ends no wait", "stores/http.py",
        "raise errors.StoreUnavailableError(str(limited)) from limited", "raise",
        "stores/test_http_patience.py::test_a_look_of_one_who_waits_ends_soon_and_ends_no_wait",
    ),
    Mutant(
        "a look of one who waits is short", "stores/http.py",
        "messages.Get.of(request_id=request_id), is_brief=True", "messages.Get.of(request_id=request_id)",
        "stores/test_http_patience.py::test_a_look_of_one_who_waits_ends_soon_and_ends_no_wait",
    ),
    Mutant(
        "the listener waits as long as the server says", "stores/http.py",
        "self._put_off(jittered(later.seconds, never_less=True))", "pass",
        "stores/test_http_patience.py::test_the_listener_asks_again_when_the_server_says_so_and_not_before",
    ),
    Mutant(
        "an end that is reached is asked for with patience", "gates/wait.py",
        "is_over = is_due(self._request, clock.now())", "is_over = False",
        "stores/test_http_patience.py::test_an_end_that_is_reached_is_asked_for_as_long_as_a_server_limits",
    ),
    # -- coding agents ---------------------------------------------------------------------------------------------
    Mutant(
        "a pattern lets no second command pass behind the first", "integrations/agenthooks/options.py",
        "(is_plain and fnmatchcase(str(text), rest))", "(is_shell and fnmatchcase(str(text), rest))",
        "integrations/hooks/test_agent_hooks.py::test_patterns_let_pass_what_they_show_and_nothing_behind_it",
    ),
    Mutant(
        "an approval counts in the folder that was shown", "integrations/agenthooks/handoff.py",
        "shape_of(event.tool, event.arguments, event.folder, event.agent, store.url)", "shape_of(event.tool, event.arguments)",
        "integrations/hooks/test_agent_hooks.py::test_the_same_command_in_another_folder_is_another_call",
    ),
    Mutant(
        "the start is held by the process that runs the call", "integrations/agenthooks/handoff.py",
        "arguments = held.start(by=me)", "arguments = held.start()",
        "integrations/hooks/test_agent_hooks.py::test_the_start_is_held_by_the_host_and_not_by_the_shell_around_the_hook",
    ),
    Mutant(
        "a pattern says all that the host executes", "integrations/agenthooks/options.py",
        "or event.arguments.keys() - {name} - beside:", ":",
        "integrations/hooks/test_agent_hooks.py::test_patterns_look_at_what_the_host_executes_and_at_all_of_it",
    ),
    Mutant(
        "a cloned folder brings no store and no grants", "integrations/agenthooks/options.py",
        "if is_project and os.path.isfile(path):", "if os.path.isfile(path):",
        "integrations/hooks/test_trusted_settings.py::test_a_cloned_folder_brings_no_store_and_no_grants",
    ),
    Mutant(
        "settings that changed are trusted no more", "integrations/agenthooks/options.py",
        "if _digest(name) != digest:", "if False:",
        "integrations/hooks/test_trusted_settings.py::test_a_trusted_file_counts_as_it_was_and_a_changed_one_denies_every_call",
    ),
    Mutant(
        "settings are read as they were looked at", "config.py",
        "if digest is not None and hashlib", "if False and hashlib",
        "integrations/hooks/test_trusted_settings.py::test_a_file_that_changes_after_it_was_looked_at_is_not_read",
    ),
    Mutant(
        "no settings count beside those that a hook follows", "config.py",
        "    if pinned is not None:\n", "    if False:\n",
        "integrations/hooks/test_trusted_settings.py::test_settings_above_the_home_folder_are_not_the_users_own",
    ),
    Mutant(
        "a call's id that comes again while it runs is another call", "integrations/agenthooks/handoff.py",
        "or not session.is_first(running.data[\"token\"], *options)", "",
        "integrations/hooks/test_agent_hooks.py::test_two_hooks_of_one_call_both_let_it_through_and_no_call_whose_id_comes_again",
    ),
    Mutant(
        "a change to an equal value of another type is a change", "integrations/agenthooks/handoff.py",
        "changed = None if canonical.is_same(arguments, event.arguments) else arguments", "changed = None if arguments == event.arguments else arguments",
        "integrations/hooks/test_agent_hooks.py::test_a_change_to_an_equal_value_of_another_type_reaches_the_host",
    ),
    Mutant(
        "an edit to an equal value of another type is what a framework's tool gets", "integrations/tool_calls.py",
        "is_unchanged = canonical.is_same(approved, given)", "is_unchanged = approved == given",
        "integrations/test_tool_hook.py::test_change_to_an_equal_value_of_another_type_is_what_runs",
    ),
    Mutant(
        "an argument that the model gives in the framework's place is shown", "integrations/tool_calls.py",
        "given = others | {n: value for n, value in arguments.items() if n in each[2]}", "given = others",
        "integrations/test_tool_hook.py::test_argument_that_the_model_gives_in_place_of_the_framework_is_shown",
    ),
    Mutant(
        "a hook that fails keeps the call from running", "integrations/agenthooks/__init__.py",
        'if kind == "before":\n            return Answer(0, host.deny(', 'if kind == "":\n            return Answer(0, host.deny(',
        "integrations/hooks/test_agent_hooks.py::test_a_store_that_cannot_be_reached_is_a_no",
    ),
    Mutant(
        "a hook that fails tells its host so", "integrations/agenthooks/settings.py",
        "call was not run >&2; exit 2", "call was not run; exit 2",
        "integrations/hooks/test_hook_settings.py::test_install_writes_a_hook_that_blocks_where_it_fails_and_ends_before_its_host_gives_up",
    ),
    Mutant(
        "an equal MCP call after the result was delivered asks anew", "integrations/mcp_gateway/gateway.py",
        'if occasion.delivered is not None and not (occasion.is_ticket and arrived < occasion.delivered):', 'if False:',
        "integrations/test_mcp_gateway.py::test_a_call_made_again_finds_its_decision_and_its_edit_and_an_equal_one_after_that_asks_anew",
    ),
    Mutant(
        "two equal MCP calls at once wait twice", "integrations/mcp_gateway/gateway.py",
        'if occasion.users > 0 and not occasion.is_ticket:', 'if False:',
        "integrations/test_mcp_gateway.py::test_two_equal_calls_at_once_wait_twice_and_one_is_decided_before_the_other",
    ),
    Mutant(
        "an MCP client that cancels withdraws", "integrations/mcp_gateway/gateway.py",
        'if occasion.users == 1:', 'if False:',
        "integrations/test_mcp_gateway.py::test_a_client_that_cancels_withdraws_and_nothing_starts_later",
    ),
    Mutant(
        "a call that is cancelled while it is recorded is withdrawn", "integrations/mcp_gateway/gateway.py",
        "                    if found is not None:\n                        await offload", "                    if False:\n                        await offload",
        "integrations/test_mcp_gateway.py::test_a_call_that_is_cancelled_while_it_is_recorded_is_withdrawn",
    ),
    Mutant(
        "the approval of a tool's old schema does not run", "integrations/mcp_gateway/gateway.py",
        'if held.state == "approved":', 'if False:',
        "integrations/test_mcp_gateway.py::test_a_changed_schema_is_told_to_the_reviewer_and_an_approval_of_the_old_one_does_not_run",
    ),
    Mutant(
        "a call that another process started is not told as not run", "integrations/mcp_gateway/gateway.py",
        "if held.request is None or held.request.execution is None:", "if True:",
        "integrations/test_mcp_gateway.py::test_a_call_of_a_changed_tool_that_another_process_has_just_started_is_not_told_as_not_run",
    ),
    Mutant(
        "a changed schema is told to the reviewer", "integrations/mcp_gateway/gateway.py",
        'about = {"tool changed": self._notes.get(tool["name"]), "equal', 'about = {"equal',
        "integrations/test_mcp_gateway.py::test_a_changed_schema_is_told_to_the_reviewer_and_an_approval_of_the_old_one_does_not_run",
    ),
    Mutant(
        "an edit of an MCP call is held to the tool's own schema", "integrations/mcp_gateway/gateway.py",
        'name, call.arguments, schema=tool.get("inputSchema"), key=key,', 'name, call.arguments, schema={"type": "object"}, key=key,',
        "integrations/test_mcp_gateway.py::test_an_edit_is_checked_by_the_schema_of_the_tool",
    ),
    Mutant(
        "the MCP gateway's list hides no tool", "integrations/mcp_gateway/connection.py",
        "await self._to_client(raw, number)", "await self._to_client(dump(message), number)",
        "integrations/test_mcp_schemas.py::test_the_list_of_a_foreign_server_passes_byte_for_byte",
    ),
    Mutant(
        "an MCP server that closed its output is ended", "integrations/mcp_gateway/connection.py",
        "            await self._end()  # it may", "            pass  # it may",
        "integrations/test_mcp_hostile.py::test_a_server_whose_answers_cannot_come_any_more_is_ended",
    ),
    Mutant(
        "an MCP server that reads nothing keeps no client waiting", "integrations/mcp_gateway/connection.py",
        "if stdin.transport.get_write_buffer_size() > _LINE:", "if await stdin.drain():",
        "integrations/test_mcp_hostile.py::test_a_server_that_reads_nothing_keeps_no_client_from_ending_its_session",
    ),
    Mutant(
        "a receiver that hung holds up no other", "channels/webhook.py",
        "if time.monotonic() - begun >= SECONDS / 2:", "if False:",
        "channels/test_http_post.py::test_a_receiver_that_hung_is_not_waited_for_again_within_a_minute",
    ),
    Mutant(
        "an MCP session that ends withdraws its tickets", "integrations/mcp_gateway/gateway.py",
        'if self._settings.run is None:', 'if False:',
        "integrations/test_mcp_gateway.py::test_a_session_that_ends_withdraws_what_waits_and_what_was_approved",
    ),
    Mutant(
        "a name in another spelling gets no call past the gateway", "integrations/mcp_gateway/connection.py",
        "        if wrong:  # the gateway", "        if False:  # the gateway",
        "integrations/test_mcp_gateway.py::test_no_spelling_of_a_message_gets_a_held_call_past_the_gateway",
    ),
    Mutant(
        "no rule and no budget confirms an agent's proposal", "integrations/mcp_server.py",
        "when=lambda: policy.hold(risk=target.risk, channels=target.channels, always=True), always=True,", "",
        "integrations/test_mcp_server.py::test_no_rule_and_no_budget_confirms_a_proposal",
    ),
    Mutant(
        "a proposal to decide a risky call is as risky", "integrations/mcp_server.py",
        "risk=target.risk, ", "",
        "integrations/test_mcp_server.py::test_a_proposal_is_as_risky_as_what_it_would_decide",
    ),
    Mutant(
        "a name with a colon is nobody of that issuer", "channels/settings.py",
        'if ":" not in reviewer.subject else set[str]()', "if True else set[str]()",
        "server/test_hook_limits.py::test_the_settings_say_who_may_review_beside_what_else_stands_there",
    ),
    Mutant(
        "addresses of one IPv6 network are one sender", "server/auth/sign_in.py",
        "if isinstance(address, IPv6Address):", "if False:",
        "server/test_proxy_sign_in.py::test_where_an_attempt_came_from_is_the_proxys_word_only",
    ),
    Mutant(
        "a provider that hangs leaves threads to the pages", "server/auth/login.py",
        "to_thread.run_sync(ask, limiter=threads)", "run_in_threadpool(ask)",
        "server/test_openid.py::test_a_provider_that_hangs_keeps_nobody_from_the_pages",
    ),
    Mutant(
        "a call that cannot be told field by field fits as a whole", "model/grant.py",
        "        if path or tree:", "        if path:",
        "model/test_grant.py::test_a_call_that_cannot_be_told_field_by_field_fits_only_as_a_whole",
    ),
    Mutant(
        "an altered grant approves nothing", "stores/grants.py",
        "if not _is_as_written(tx, GRANT, grant_id) or _ended_by_time(tx, grant):", "if _ended_by_time(tx, grant):",
        "stores/test_contract.py::TestSqlite::test_a_grant_that_was_altered_approves_nothing_and_starts_nothing",
    ),
    Mutant(
        "an altered grant starts nothing", "stores/grants.py",
        "if not _is_as_written(tx, GRANT if grant is not None else ENDED_GRANT, grant_id):", "if False:",
        "stores/test_contract.py::TestSqlite::test_a_grant_that_was_altered_approves_nothing_and_starts_nothing",
    ),
    Mutant(
        "nobody agrees to an altered grant", "stores/grants.py",
        "if grant is not None and not _is_as_written(tx, GRANT, grant_id):", "if False:",
        "stores/test_contract.py::TestSqlite::test_nobody_agrees_to_a_grant_that_was_altered",
    ),
    Mutant(
        "an altered account has no room", "stores/grants.py",
        "if not _is_as_written(tx, BUDGET, account):", "if False:",
        "stores/test_contract.py::TestSqlite::test_an_account_that_was_altered_has_no_room",
    ),
    Mutant(
        "a stop that was taken away still stops", "stores/grants.py",
        "return None if newest is None else _stop_in_entry(newest)", "return None",
        "stores/test_contract.py::TestSqlite::test_a_stop_that_was_taken_away_by_hand_still_stops",
    ),
    Mutant(
        "a start in one statement looks at the journal's stop", "stores/sql.py",
        "if STOP in kinds:", "if False:",
        "stores/test_contract.py::TestSqlite::test_a_stop_that_was_taken_away_by_hand_still_stops",
    ),
    Mutant(
        "the audit finds altered grants, budgets and stops", "audit/__init__.py",
        "if digests == ([] if left is None else [left]):", "if True:",
        "stores/test_contract.py::TestSqlite::test_a_grant_that_was_put_back_or_put_in_by_hand_approves_nothing",
    ),
    Mutant(
        "a foreign tool is taken for no function", "gates/hooks.py",
        "is_function=gate.tool != gate.name,", "",
        "policy/test_rules.py::test_a_tool_that_a_foreign_server_names_is_no_function",
    ),
    Mutant(
        "a page that another site asked for is not compressed", "server/context.py",
        'is_ours = http.headers.get("sec-fetch-site") in {"same-origin", "none"}', "is_ours = True",
        "server/test_guard.py::test_a_page_that_another_site_asked_for_is_not_compressed",
    ),
    Mutant(
        "the token of forms is masked on each page", "server/pages/rendering.py",
        "csrf=context.session.masked_csrf()", "csrf=context.session.csrf",
        "server/test_guard.py::test_the_token_of_forms_is_drawn_otherwise_on_each_page_and_every_drawing_counts",
    ),
    Mutant(
        "an operator's token lets no starts go on", "server/api/review.py",
        '"Let calls start again", kinds=_REVIEW)', '"Let calls start again", kinds=_READERS)',
        "server/test_api_tokens.py::test_each_kind_of_token_does_what_it_may_and_nothing_else",
    ),
    Mutant(
        "a grant for one place says nothing of another", "model/grant.py",
        "return dict(_leaves(canonical.load(call.form))) | dict(places)", "return dict(_leaves(canonical.load(call.form)))",
        "integrations/hooks/test_agent_hooks.py::test_a_grant_counts_in_the_folder_that_was_shown",
    ),
    Mutant(
        "an outcome that was found out is not recorded of a later start", "server/pages/actions.py",
        'if execution is not None and context.form.get("start") != str(execution.starts):', "if False:",
        "server/test_actions.py::test_what_was_found_out_about_a_start_is_not_recorded_of_a_later_one",
    ),
    Mutant(
        "a high risk asks once more", "server/pages/rendering.py",
        'if not is_high(request.risk) or form.get("sure") == "yes":', "if True:",
        "server/test_actions.py::test_a_high_risk_is_approved_only_by_who_says_that_they_are_sure",
    ),
    Mutant(
        "a mask is no text of three stars", "model/redaction.py",
        'return {"$secret": None} if shown == MASK != real else shown', "return shown",
        "server/test_arguments.py::test_a_masked_value_is_marked_and_a_text_of_three_stars_is_a_text",
    ),
    Mutant(
        "a hidden fact is never the same", "model/grant.py",
        "if path.startswith(_CONTEXT) and tree == canonical.MASK:", "if False:",
        "model/test_grant.py::test_a_hidden_fact_of_a_context_is_never_the_same",
    ),
    Mutant(
        "an answer to another request is none to this one", "integrations/mcp_gateway/elicitation.py",
        'elif self.is_answer(params) and params.get("requestState") == state:', 'elif self.is_answer(params):',
        "integrations/test_mcp_gateway.py::test_a_client_of_the_stateless_protocol_answers_with_the_call_made_again",
    ),
    Mutant(
        "the gateway takes no decision from a client by itself", "integrations/mcp_gateway/elicitation.py",
        'return self._reviewer is not None and able.get("elicitation") is not None', 'return able.get("elicitation") is not None',
        "integrations/test_mcp_gateway.py::test_without_being_told_to_the_gateway_takes_no_decision_from_a_client",
    ),
    Mutant(
        "a proposal of an agent is confirmed by no proposal", "integrations/mcp_server.py",
        'if _name(target).startswith(_PREFIX):', 'if False:',
        "integrations/test_mcp_server.py::test_a_proposal_cannot_be_confirmed_by_a_proposal",
    ),
    # -- notifications in browsers ----------------------------------------------------------------------------------
    Mutant(
        "no message goes to a push service in a private network", "server/push.py",
        "allow_private=self._allow_private)", "allow_private=True)",
        "server/test_push.py::test_no_message_goes_to_a_private_address",
    ),
    Mutant(
        "only who could decide is told", "server/push.py",
        "must_be_allowed(request, identity, reviewer.roles, clock.now(), is_vote=True)", "pass",
        "server/test_push.py::test_only_who_could_decide_is_told",
    ),
    Mutant(
        "who may not review any more is not told", "server/push.py",
        "if not self._sign_in.admits(reviewer):", "if False:",
        "server/test_push.py::test_nobody_who_may_not_review_any_more_is_told",
    ),
    Mutant(
        "a device is not told for ever", "server/push.py",
        "return device.record.due is None or device.record.due <= now", "return False",
        "server/test_push.py::test_a_device_is_told_until_its_reviewer_signs_out_or_somebody_else_signs_in_or_nobody_does",
    ),
    Mutant(
        "a device of somebody else is not removed", "server/push.py",
        "return is_theirs and self._drop(key)", "return self._drop(key)",
        "server/test_push.py::test_a_reviewer_sees_tries_and_removes_their_own_devices",
    ),
    Mutant(
        "a notification approves only what the policy and the record let it", "server/pages/settings.py",
        "if not may_approve_there(store, request):", "if False:",
        "server/test_push.py::test_nothing_else_is_approved_from_a_notification",
    ),
    Mutant(
        "a notification approves only what it showed", "server/pages/settings.py",
        "review.approve(request.id, seen=seen)", "review.approve(request.id)",
        "server/test_push.py::test_a_request_that_changed_since_is_not_approved_from_its_notification",
    ),
    Mutant(
        "a program with a token cannot have itself approved from a notification", "server/push.py",
        "or request.requester.issuer == TOKENS:", "or False:",
        "server/test_push.py::test_nothing_else_is_approved_from_a_notification",
    ),
    Mutant(
        "what a notification cannot show whole is not approved there", "server/push.py",
        "card.headline(request, _ALL)", "card.headline(request, 100 * _ROOM)",
        "server/test_push.py::test_nothing_else_is_approved_from_a_notification",
    ),
    Mutant(
        "what one approval starts several times is not approved from a notification", "server/push.py",
        " and card.starts(request) is None", "",
        "server/test_push.py::test_nothing_else_is_approved_from_a_notification",
    ),
    Mutant(
        "a rule that wants approval from notifications is of low risk and for one reviewer", "policy/verdict.py",
        "if self.approve_from_notification and not (", "if False and not (",
        "server/test_push.py::test_a_rule_that_could_not_count_is_refused",
    ),
    # -- the Agent Approval Protocol --------------------------------------------------------------------------------
    Mutant(
        "what its program could not take is not edited", "model/edit.py",
        "    if digest != before.digest:\n        must_not_be_read_only(request)\n", "",
        "server/test_aap.py::test_nobody_can_change_the_arguments",
    ),
    Mutant(
        "no store takes an edit that its program could not take", "model/lifecycle.py",
        "    if edited is not None:\n        must_not_be_read_only(request)\n", "",
        "server/test_aap.py::test_no_store_takes_changed_arguments",
    ),
    Mutant(
        "a key stands for one submission", "server/api/aap.py",
        "if request.place != digest:", "if False:",
        "server/test_aap.py::test_a_submission_that_was_swapped_under_its_key_is_refused",
    ),
    Mutant(
        "a program's stream tells of no comment and of no other program", "server/api/events.py",
        "(one.requester == requester and one.entry.event != teamwork.COMMENTED)", "one.requester.is_same(requester)",
        "server/test_api_events.py::test_an_ask_token_hears_of_its_own_requests_only",
    ),
    Mutant(
        "no two programs that grants take for one", "server/auth/tokens.py",
        "one.person.subject != name and one.person.is_same(person.identity)", "False",
        "server/test_api_tokens.py::test_no_program_gets_a_name_that_another_ones_grants_and_budgets_fit",
    ),
    Mutant(
        "a start that was given back is not consumed", "server/api/aap.py",
        "        program.must_have_starts(own, request)", "        pass",
        "server/test_aap.py::test_a_start_that_its_program_gave_back_without_a_persons_answer_is_not_consumed_again",
    ),
    Mutant(
        "an altered submission is found", "server/api/aap.py",
        'if _digest_of(record.body["text"]) != request.place:', "if False:",
        "server/test_aap.py::test_a_submission_that_was_altered_in_the_store_is_found_before_a_start",
    ),
    Mutant(
        "a consume key that did not start the call does not get it", "server/api/aap.py",
        "if request.execution.token != token:", "if False:",
        "server/test_aap.py::test_of_ten_consumes_at_once_one_gets_the_call",
    ),
    Mutant(
        "a header that a server must refuse is left to it", "server/api/endpoint.py",
        "if not (value.isascii() and value.isprintable()):", "if False:",
        "server/test_connections.py::test_a_header_that_a_server_must_refuse_is_left_to_it",
    ),
    Mutant(
        "pipelined requests are answered in their order", "server/protection.py",
        "            cycle.scope is not scope  # the next request was pipelined\n            or cycle.disconnected\n",
        "            cycle.disconnected\n",
        "server/test_connections.py::test_pipelined_requests_are_answered_in_their_order",
    ),
    Mutant(
        "who began to ask is not let go as idle", "server/protection.py",
        "        self._rests_until = math.inf\n        super().data_received(data)", "        super().data_received(data)",
        "server/test_connections.py::"
        "test_who_asks_nothing_more_is_let_go_and_who_began_to_ask_keeps_the_time_for_a_header",
    ),
    Mutant(
        "who is idle and does not read is given up", "server/protection.py",
        "what was sent\n        self._set_timer()", "what was sent\n            return\n        self._set_timer()",
        "server/test_connections.py::test_who_asks_nothing_more_and_does_not_read_the_answer_is_given_up",
    ),
    Mutant(
        "names that programs choose are not kept for long", "server/api/validation.py",
        "if next(_calls) % _FORGETS == 0:", "if False:",
        "stores/test_http_attacks.py::test_names_that_programs_choose_are_not_kept_for_long",
    ),
    Mutant(
        "nothing is answered before its commit", "server/writer.py",
        "        try:\n            return [*zip(",
        "        try:\n            [job.loop.call_soon_threadsafe(_tell, [(job.tell, None)]) for job in jobs]\n"
        "            return [*zip(",
        "server/test_writer.py::test_nothing_is_answered_before_its_commit",
    ),
    Mutant(
        "a record that was dropped is not found in the transaction", "stores/sqlite_transaction.py",
        "        self._records[kind, key] = None\n", "        pass\n",
        "server/test_writer.py::test_a_batch_sees_what_another_process_changed_and_dropped_before_it",
    ),
    Mutant(
        "those who look hold up no verb for long", "server/writer.py",
        "self._taken(jobs, _MOST) + self._taken(looks, _MOST_LOOKS)",
        "self._taken(jobs, _MOST) + self._taken(looks, len(looks))",
        "server/test_writer.py::test_many_who_look_leave_room_for_what_is_written",
    ),
    Mutant(
        "who waits for no time looks all the same", "server/events.py",
        "        if self._has_looked:\n", "        if True:\n",
        "server/test_api_input.py::test_a_token_has_so_many_requests_under_way_and_others_are_not_held_up",
    ),
    Mutant(
        "a revocation is looked up in the transaction", "server/api/endpoint.py",
        "if token_id is not None and not tokens.is_good(token_id, self.store):", "if False:",
        "server/test_writer.py::test_a_token_that_was_revoked_meanwhile_writes_nothing",
    ),
    Mutant(
        "a work that failed leaves nothing behind", "stores/base.py",
        "if view.has_written and error is not view.refusal:", "if False:",
        "server/test_writer.py::test_the_verbs_of_one_work_are_one_transaction",
    ),
    Mutant(
        "nobody begins another program's run", "server/api/validation.py",
        "if run_id.startswith(AAP_RUNS):", "if False:",
        "server/test_aap.py::test_another_program_cannot_begin_the_run_of_a_call",
    ),
    Mutant(
        "a program reads no reviewer's comment", "server/api/validation.py",
        "if entry.event == teamwork.COMMENTED:", "if False:",
        "stores/test_http_starts.py::test_neither_comments_nor_rows_of_anothers_request_are_read_with_ones_own_run",
    ),
    Mutant(
        "what a run masks by its own names is masked in what led to a call", "server/pages/runs.py",
        "masked = Redaction(list(filter(words_of, names.union(request.redact))))", "masked = Redaction()",
        "server/test_together.py::test_no_value_that_the_run_masks_anywhere_is_told_beside_a_call",
    ),
    Mutant(
        "what led to a call is masked before it is shortened", "server/pages/runs.py",
        "_in_short(_scrubbed(tree, hidden))", "brief(tree, _ROOM)",
        "server/test_together.py::test_no_value_that_the_run_masks_anywhere_is_told_beside_a_call",
    ),
    Mutant(
        "an instance takes no other program's name", "server/api/aap.py",
        'if any(one.kind == "ask" and folded(one.person.subject) == key for one in tokens.all()):', "if False:",
        "server/test_aap.py::test_no_instance_gets_the_name_of_another_program",
    ),
    Mutant(
        "a receiver answers the challenge", "server/api/aap.py",
        'if status == 200 and json.loads(content) == {"challenge": challenge}:', "if status < 500:",
        "server/test_aap.py::test_a_receiver_that_is_not_there_gets_no_instance",
    ),
    Mutant(
        "a nested call that a rule allowed is remembered", "gates/call.py",
        "    caller.passed(attempt)\n", "    pass\n",
        "runs/test_rules.py::test_a_nested_call_that_a_rule_allows_is_not_made_again_where_its_handler_is_resumed",
    ),
    # -- adapters of frameworks ----------------------------------------------------------------------------------
    Mutant(
        "an edit that the tool refuses goes back to its reviewers", "integrations/tool_calls.py",
        "            await held.send_back(*problems)\n", "            pass\n",
        "integrations/adapters/test_pydantic_ai.py::test_edit_that_only_a_validator_refuses_goes_back_to_the_reviewer",
    ),
    Mutant(
        "a cancelled task takes back what it has just asked", "integrations/tool_calls.py",
        'if options.get("withdraw_on_exit") and not is_random(options.get("run") or scope.current().run_id):', "if False:",
        "integrations/adapters/test_functions.py::test_cancelled_while_the_request_is_recorded_asks_once_and_withdraws",
    ),
    Mutant(
        "Cursor that runs the hook of Claude Code waits", "integrations/agenthooks/hosts.py",
        'if named.name != "claude-code" or "cursor_version" not in given:', "if True:",
        "integrations/hooks/test_agent_hooks.py::test_cursor_that_runs_the_hook_of_claude_code_waits_and_shares_the_decision_with_its_own",
    ),
    Mutant(
        "a cancelled scope still withdraws what nobody waits for", "aio.py",
        "await shielded(adrive(self._leaving()))", "await adrive(self._leaving())",
        "gates/test_held.py::test_a_cancelled_scope_of_anyio_that_leaves_the_block_withdraws",
    ),
    Mutant(
        "two equal calls of a server's tool wait twice", "integrations/fastmcp.py",
        "key = new_token() if self._timeout is None else", "key = None if self._timeout is None else",
        "integrations/test_fastmcp_unlisted.py::test_two_equal_calls_at_once_are_two_requests_and_both_run",
    ),
    Mutant(
        "what a run is resumed with decides nothing", "integrations/pydantic_ai.py",
        "if not self.tools.holds(name):", "if not self.tools.holds(name) or ctx.tool_call_approved:",
        "integrations/adapters/test_pydantic_ai.py::TestPydanticAI::test_resume_before_the_decision_pauses_again_and_asks_nobody_twice",
    ),
    Mutant(
        "a changed call runs with what was changed", "integrations/pydantic_ai.py",
        "await _validated(tool, approved, ctx) if is_changed else tool_args", "tool_args",
        "integrations/adapters/test_pydantic_ai.py::test_edit_that_only_a_validator_refuses_goes_back_to_the_reviewer",
    ),
    Mutant(
        "a name that no tool has is an error", "integrations/pydantic_ai.py",
        "        self.tools.check(tools)\n", "",
        "integrations/adapters/test_pydantic_ai.py::test_name_that_no_tool_has_is_an_error",
    ),
]  # fmt: skip
