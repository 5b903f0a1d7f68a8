"""The guards of the core, one mutant for each: its text, what stands there without it, the test that must turn red.

The core is where a call is held, decided, started and recorded. Guards of pages, adapters and commands have tests only.
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
    # -- which function it is ---------------------------------------------------------------------------------------
    Mutant(
        "a wrapper hides nothing that its function captures", "gates/captured_values.py",
        ' and not _hides_defaults(cast("FunctionType", function))', "",
        "gates/test_same_name.py::test_value_behind_another_function_is_part_of_the_call",
    ),
    Mutant(
        "a decorator around another one hides nothing that it captures", "gates/captured_values.py",
        "for layer in (*layers, inner)", "for layer in (self._function, inner)",
        "gates/test_same_name.py::test_value_behind_an_object_that_wraps_a_function_is_part_of_the_call",
    ),
    # -- the key, the effect and the result -------------------------------------------------------------------------
    Mutant(
        "a key finds its request", "stores/program.py",
        "held = tx.keyed(request.run_id, request.key)", "held = tx.holder(request.fingerprint)",
        "stores/test_contract.py::TestMemory::test_a_key_finds_its_request_in_every_state",
    ),
    Mutant(
        "a call that waits keeps its key", "gates/gated_call.py",
        "site = site._replace(key=request.key)", "pass",
        "gates/test_block.py::test_a_decision_reaches_its_call_although_the_hook_of_the_key_gives_another_one",
    ),
    Mutant(
        "a start by hand of an edit with another effect spends no approval", "gates/held.py",
        "returned = yield from send_back(gate, self._store, request, wanted)", "returned = None",
        "gates/test_held.py::test_an_edit_that_moves_the_effect_is_not_started_where_the_rule_does_not_name_it_any_more",
    ),
    Mutant(
        "an edit has the effect that its rule names for it", "gates/hooks.py",
        "    if effect is None or gate.has_effect_of_rule:\n", "    if effect is None:\n",
        "promises/test_15_an_effect_starts_once.py"
        "::test_15_an_edit_to_arguments_with_another_effect_by_the_rule_goes_back",
    ),
    Mutant(
        "an edit to arguments that have an effect goes back", "gates/hooks.py",
        "if effect is None and request.effect is None:", "if request.effect is None:",
        "promises/test_15_an_effect_starts_once.py"
        "::test_15_an_edit_to_arguments_with_another_effect_by_the_rule_goes_back",
    ),
    Mutant(
        "who is cancelled before the start takes the approval back", "gates/held.py",
        "is_cancelled = error is not None and not isinstance(error, (Exception, *self._gate.suspends))",
        "is_cancelled = False",
        "gates/test_held.py::test_who_is_cancelled_before_an_approved_call_starts_takes_its_approval_back",
    ),
    Mutant(
        "an approval to which nobody can come back is withdrawn", "gates/held.py",
        "is_cancelled |= not (self._site.has_name or error is None or isinstance(error, comes_back))", "pass",
        "gates/test_held.py::test_who_leaves_after_an_error_in_a_run_without_a_name_frees_the_effect",
    ),
    Mutant(
        "a key that was used for another call is refused", "stores/program.py",
        "            lifecycle.must_be_same(held, request)", "            pass",
        "stores/test_contract.py::TestSqlite::test_a_key_is_refused_for_other_arguments_and_for_another_kind",
    ),
    Mutant(
        "what a key finds is held to the journal", "stores/program.py",
        "            if not tx.verify(held):", "            if False:",
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
        "an effect that may have happened is taken", "model/lifecycle.py",
        "if other.state in _TAKEN or waits", "if other.state is State.RUNNING or waits",
        "stores/test_contract.py::TestMemory::test_an_effect_is_taken_while_an_earlier_request_may_still_have_it",
    ),
    Mutant(
        "a call that stopped half-way keeps its effect", "model/lifecycle.py",
        "or waits or _stopped_half_way(other):", "or waits:",
        "promises/test_15_an_effect_starts_once.py::test_15_a_call_that_stopped_half_way_frees_no_effect",
    ),
    Mutant(
        "equal numbers have one effect", "gates/hooks.py",
        "return _shortest(value) if self._is_name else value, first", "return value, first",
        "promises/test_15_an_effect_starts_once.py::test_15_equal_values_have_the_same_effect_however_they_are_written",
    ),
    Mutant(
        "equivalent texts have one effect", "model/ids.py",
        'unicodedata.normalize("NFC", effect)', "effect",
        "promises/test_15_an_effect_starts_once.py::test_15_equal_values_have_the_same_effect_however_they_are_written",
    ),
    Mutant(
        "a deleted request keeps its effect", "stores/sql.py",
        "        _must_have_rows(rows)\n", "        rows = [row for row in rows if row[1] is not None]\n",
        "promises/test_15_an_effect_starts_once.py::test_15_a_request_that_was_deleted_frees_no_effect",
    ),
    Mutant(
        "a new key is not in the journal", "stores/sqlite_transaction.py",
        'guard += f" AND {_KEY_IS_NEW}" * has_key', "pass",
        "promises/test_14_a_key_is_asked_once.py::test_14_a_request_that_was_deleted_or_altered_frees_no_key",
    ),
    Mutant(
        "all of a quorum say that an effect may happen again", "model/lifecycle.py",
        "edited is not None or any(vote.again is not decision.again for vote in votes)", "edited is not None",
        "stores/test_contract.py::TestMemory::test_again_begins_the_count_of_a_quorum_anew",
    ),
    Mutant(
        "a write that changed no row is an error", "stores/sqlite_transaction.py",
        "                if not self._may_guess:\n                    raise errors.StoreC", "                if False:\n                    raise errors.StoreC",
        "stores/test_altered.py::test_a_write_that_the_file_does_not_take_is_refused_in_words",
    ),
    # -- who starts, and who ends -----------------------------------------------------------------------------------
    Mutant(
        "only an approved call is started", "model/lifecycle.py",
        "if (request.state is not State.APPROVED and not again) or is_spent:",
        "if request.state is State.PENDING:",
        "stores/test_contract.py::TestSqlite::test_only_an_approved_call_is_started",
    ),
    Mutant(
        "a call whose end is broken off is unknown", "gates/execution.py",
        "        yield from _not_recorded(store, start, error)\n", "",
        "gates/test_outcomes.py::test_call_whose_end_is_broken_off_before_it_is_recorded_is_unknown",
    ),
    Mutant(
        "only the last token ends a call", "model/lifecycle.py",
        "execution.token != token or ", "",
        "model/test_lifecycle.py::test_only_the_last_token_ends_a_call",
    ),
    Mutant(
        "an outcome stands", "model/lifecycle.py",
        " or execution.finished_at is not None:", ":",
        "model/test_lifecycle.py::test_a_final_state_never_changes",
    ),
    Mutant(
        "an unknown outcome is not retried", "model/lifecycle.py",
        "again = request.state is State.UNKNOWN and request.idempotent", "again = request.state is State.UNKNOWN",
        "model/test_lifecycle.py::test_retries_give_no_start_after_an_unknown_outcome",
    ),
    Mutant(
        "a spent approval is not found again", "model/lifecycle.py",
        'state, holds = _ENDS[event], event == "unknown"', "state, holds = _ENDS[event], True",
        "model/test_lifecycle.py::test_a_spent_approval_no_longer_holds_and_an_unknown_one_does",
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
        "a person is barred whoever vouches for the name", "model/reviewer.py",
        "if mine == theirs:\n            return True", "if mine == theirs:\n            return self.is_same(other)",
        "gates/test_acting_for.py::test_person_is_barred_under_whatever_name_it_may_be",
    ),
    Mutant(
        "the start looks at the needs again", "gates/execution.py",
        "if (lack := wanted.lack_of(request)) is not None:", "if (lack := None) is not None:",
        "gates/test_needs.py::test_call_is_not_executed_by_an_approval_that_lacks_what_it_needs",
    ),
    Mutant(
        "a pool's thread is not in the run of its caller's parent", "gates/scope.py",
        "if is_here and (job is None or _handed.get() == (scope, threading.get_ident())):", "if is_here:",
        "gates/test_pool_threads.py::test_a_pools_thread_does_not_stand_in_the_run_of_its_callers_parent",
    ),
    Mutant(
        "a thread that has its task's run hands it on to no thread of its own", "gates/scope.py",
        "_handed.get() == (scope, threading.get_ident())", "_handed.get() is not None",
        "gates/test_pool_threads.py::test_a_thread_that_has_its_tasks_run_hands_it_on_to_no_thread_of_its_own",
    ),
    Mutant(
        "a module's thread is in the run of its task", "gates/scope.py",
        "job is None or _handed.get() == (scope, threading.get_ident())", "job is None",
        "runs/test_module.py::test_module_without_one_runs_again_and_finds_the_decision",
    ),
    Mutant(
        "a context remembers its last tasks only", "gates/scope.py",
        "        oldest.parent = None", "        pass",
        "gates/test_scope.py::test_a_context_in_which_one_task_follows_the_other_remembers_the_last_64",
    ),
    Mutant(
        "a job of a pool that is over leaves its context in the run around it", "gates/scope.py",
        "        scope = scope.parent  # of an earlier job", "        scope = None  # of an earlier job",
        "gates/test_pool_threads.py::test_a_context_that_has_served_a_job_is_in_the_run_that_it_was_in_before",
    ),
    Mutant(
        "a call that blocks without a named run finds no earlier decision", "gates/scope.py",
        "return CallSite((new_run_id(),), self.open_calls, self.site.acts_for, has_name=False)", "return self.site",
        "gates/test_pool_threads.py::test_what_was_decided_before_counts_for_no_call_that_blocks_outside_of_a_named_run",
    ),
    Mutant(
        "nothing is asked that nobody can come back to", "gates/find_or_ask.py",
        "if wanted.pool is not None:", "if False:",
        "gates/test_pool_threads.py::test_a_call_that_raises_is_refused_in_a_pools_thread_and_told_to_name_the_run",
    ),
    Mutant(
        "a pool's thread is at another caller's job", "gates/scope.py",
        "return self.job is not None and self.job.is_over", "return False",
        "gates/test_pool_threads.py::test_a_try_that_is_left_is_the_callers_own",
    ),
    Mutant(
        "what nobody waits for does not start", "gates/wait.py",
        "self.look()\n        if self.reason is not None:", "self.look()\n        if False:",
        "promises/test_16_a_decision_reaches_its_call.py::"
        "test_16_a_decision_reaches_only_the_call_that_asked_for_it_and_still_waits",
    ),
    Mutant(
        "a named run's request waits for its next process", "gates/wait.py",
        "or not is_random(request.run_id):", "or False:",
        "gates/test_waits_end.py::test_a_thread_whose_task_was_cancelled_in_a_named_run_leaves_the_request_pending",
    ),
    Mutant(
        "what was shown is what runs", "gates/execution.py",
        "call.masked is None or is_as_shown(gate, call, call.masked)", "True",
        "gates/test_shown.py::test_call_that_was_shown_as_another_one_does_not_run",
    ),
    Mutant(
        "nothing changes while a rule is awaited", "gates/hooks.py",
        "if asked.has_moved:", "if False:",
        "gates/test_moving_arguments.py::test_call_that_changed_while_an_async_rule_decided_does_not_run",
    ),
    Mutant(
        "nothing changes between a verdict and the call that it lets through", "gates/hooks.py",
        "if _forms(arguments) != before:", "if False:",
        "gates/test_moving_arguments.py::test_call_that_changed_after_its_rule_had_let_it_through_does_not_run",
    ),
    Mutant(
        "texts are made of the recorded arguments", "gates/hooks.py",
        "return arguments if is_flat else schema.decode(form.text)", "return arguments",
        "gates/test_moving_arguments.py::test_texts_effect_and_key_are_those_of_the_recorded_arguments",
    ),
    Mutant(
        "a call fits its own types", "gates/hooks.py",
        "if problems := schema.misfits(arguments):", "if False:",
        "gates/test_proposed.py::test_argument_that_does_not_fit_its_own_type_is_refused_before_it_is_held",
    ),
    Mutant(
        "a role is needed", "model/lifecycle.py",
        "if not request.admits(by, roles):", "if False:",
        "model/test_lifecycle.py::test_a_role_is_needed_for_everything_that_a_reviewer_does",
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
        "a response that does not say what was seen counts for the call as asked", "confirmation.py",
        "request_id, seen = request.id, request.fingerprint if seen is None else seen", "request_id = request.id",
        "promises/test_01_what_runs_is_what_was_approved.py::"
        "test_1_a_yes_to_what_was_shown_does_not_count_for_what_another_reviewer_made_of_it",
    ),
    Mutant(
        "so does a decision that is passed to a run", "runs/decisions.py",
        "seen = request.fingerprint if approval.seen is None else approval.seen", "seen = approval.seen",
        "promises/test_01_what_runs_is_what_was_approved.py::test_1_nor_does_a_yes_that_is_passed_to_a_run",
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
        "an answer fits the question", "reviews/review.py",
        'schema_of(request).fit({"answer": canonical.form_of(value)})', '{"answer": canonical.form_of(value)}',
        "gates/test_guards.py::test_an_answer_that_does_not_fit_decides_nothing",
    ),
    Mutant(
        "what the function's own types refuse does not run", "gates/execution.py",
        "    problems = refused_by_types(gate, request, request.edited)\n    if not", "    problems: list[str] = []\n    if not",
        "gates/test_edits.py::test_validators_of_the_program_have_the_last_word_on_an_edit",
    ),
    Mutant(
        "an edit that came back is voted on anew", "model/lifecycle.py",
        "request, state=State.PENDING, edited=None, votes=(), decision=None,", "request, state=State.PENDING, edited=None, decision=None,",
        "gates/test_edits.py::test_an_edit_that_came_back_begins_its_votes_and_its_time_anew",
    ),
    Mutant(
        "an edit fits the function", "model/edit.py",
        "schema.fit(merged, kept=kept)", "merged",
        "gates/test_weaknesses_of_peers.py::test_edit_is_validated_before_it_counts",
    ),
    Mutant(
        "a misspelt change is no approval of the call as it was", "model/edit.py",
        "schema.must_know(name for name in written if name not in real)", "pass",
        "gates/test_held.py::test_a_misspelt_change_does_not_approve_the_call_as_it_was",
    ),
    Mutant(
        "a mask left as shown is no edit", "model/edit.py",
        "return real[name]", "return value",
        "gates/test_guards.py::test_a_masked_value_that_is_left_as_shown_stays_what_it_is",
    ),
    Mutant(
        "a mask that was moved takes no secret of another element", "model/edit.py",
        "alike[place] + (place not in found) > alike[index]", "False",
        "gates/test_edits.py::test_a_masked_element_that_was_moved_and_changed_takes_no_secret_of_another",
    ),
    Mutant(
        "a mask that was moved takes no secret of another name", "model/edit.py",
        "_alike(value, other) > own", "False",
        "gates/test_edits.py::test_a_masked_value_that_was_moved_to_another_name_takes_no_secret_of_it",
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
        "a policy file with a mistake lets nothing through", "policy/policy.py",
        "        if self.problems:\n            raise self.error(self.problems)\n        return self\n", "        return self\n",
        "policy/test_gates.py::test_with_a_broken_file_nothing_runs",
    ),
    Mutant(
        "a rule that fails lets nothing through", "gates/hooks.py",
        "refuse(gate, gate.rule, error, arguments, handled)", "return verdict_of(False, gate.rule)",
        "promises/test_08_any_error_means_not_run.py::test_8_any_error_means_not_run",
    ),
    Mutant(
        "what no other process could read is refused", "gates/find_or_ask.py",
        "canonical.check_round_trip(form, schema.classes)", "pass",
        "gates/test_guards.py::test_a_call_that_no_other_process_could_run_is_refused_when_asked",
    ),
    Mutant(
        "one open request for one call in one run", "stores/program.py",
        "met = held if expired is None else None", "met = None",
        "stores/test_contract.py::TestMemory::test_asking_the_same_in_the_same_run_finds_the_request",
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
        "what runs has the digest that was asked", "gates/execution.py",
        "if digest != call.digest or request.fingerprint_of(digest) != approved:", "if False:",
        "gates/test_guards.py::test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "what runs has the fingerprint that was approved", "gates/execution.py",
        " or request.fingerprint_of(digest) != approved:", ":",
        "gates/test_guards.py::test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "a call that was broken off is unknown", "gates/execution.py",
        'state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"',
        'state = "unknown" if attempt.is_ambiguous else "failed"',
        "gates/test_guards.py::test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "a call whose coroutine is closed goes on in its thread", "effects.py",
        "left, _closed.left = _closed.left, None", "left = None",
        "gates/test_again.py::test_a_thread_whose_task_was_cancelled_is_waited_for_and_says_how_its_call_ended",
    ),
    Mutant(
        "Ctrl-C in a call is recorded", "effects.py",
        "except BaseException as error:  # noqa: BLE001  user code; recorded by",
        "except Exception as error:  # noqa: BLE001  user code; recorded by",
        "gates/test_guards.py::test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "an outcome that is not recorded is told", "gates/execution.py",
        "raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error", "return",
        "gates/test_guards.py::test_a_call_that_ran_and_could_not_be_recorded_says_so_with_its_result",
    ),
    Mutant(
        "a forked child does not end the call of its parent", "gates/execution.py",
        "if started.pid != os.getpid():", "if False:",
        "promises/test_15_an_effect_starts_once.py::test_15_a_child_that_the_call_forks_does_not_end_it",
    ),
    Mutant(
        "nobody is asked about a call that is seen to run", "gates/execution.py",
        "if running is not None:", "if False:",
        "promises/test_03_an_unknown_outcome_is_not_retried.py::test_3_a_call_that_goes_on_in_a_process_of_this_machine_is_neither_verified_nor_retried",
    ),
    Mutant(
        "a call whose lease was lost counts as running where it runs", "stores/workers.py",
        "going += keeper.lost.values()", "going += []",
        "gates/test_again.py::test_nobody_is_asked_about_a_call_that_still_runs_in_this_process",
    ),
    Mutant(
        "a call that nobody runs any more is not kept running", "stores/workers.py",
        "return self.token is not None and self.token() is None", "return False",
        "gates/test_ctrl_c.py::test_a_call_that_was_started_by_hand_and_forgotten_is_unknown_when_its_lease_ends",
    ),
    Mutant(
        "a thread whose task was cancelled says how its call ended", "gates/execution.py",
        "if attempt.left is not None:", "if False:",
        "gates/test_again.py::test_a_thread_whose_task_was_cancelled_is_waited_for_and_says_how_its_call_ended",
    ),
    # -- stores -----------------------------------------------------------------------------------------------------
    Mutant(
        "a call is running only while its lease is renewed", "stores/program.py",
        "if is_gone or is_lost:", "if is_gone:",
        "stores/test_contract.py::TestMemory::test_a_call_whose_lease_was_not_renewed_is_unknown_and_not_started_again",
    ),
    Mutant(
        "a lease is renewed only by who holds the start", "stores/program.py",
        "if execution is None or execution.token != token or execution.resolved_by is not None:", "if execution is None:",
        "stores/test_contract.py::TestMemory::test_only_who_holds_the_start_renews_its_lease",
    ),
    Mutant(
        "a worker that lives is not given up", "stores/program.py",
        "execution.worker == gone or workers.is_gone(execution.worker)", "True",
        "stores/test_contract.py::TestMemory::test_a_call_whose_process_lives_stays_running",
    ),
    Mutant(
        "a worker that is gone is given up", "stores/program.py",
        "execution.worker == gone or workers.is_gone(execution.worker)", "False",
        "promises/test_03_an_unknown_outcome_is_not_retried.py::test_3_an_outcome_that_cannot_be_known_is_unknown_and_not_retried",
    ),
    Mutant(
        "a process number that was given out again", "stores/workers.py",
        " or _is_another(pid, theirs, mine))", ")",
        "stores/test_workers.py::test_process_number_given_out_again_is_not_taken_for_the_dead_worker",
    ),
    Mutant(
        "one verb at a time, in memory", "stores/memory.py",
        "        with self._lock:\n            tables = self._content", "        with threading.RLock():\n            tables = self._content",
        "gates/test_guards.py::test_in_memory_one_verb_ends_before_the_next_begins",
    ),
    Mutant(
        "a decision or a start compares all columns of what is remembered, on Postgres", "stores/postgres_transaction.py",
        "compares = entry.event not in ENDS_OF_CALLS", "compares = False",
        "stores/test_postgres.py::test_a_change_of_any_column_is_found_before_a_start",
    ),
    Mutant(
        "a place in the chain is taken once", "stores/sqlite_transaction.py",
        "            raise Stale from None", "            return",
        "stores/test_sqlite.py::test_two_stores_that_write_in_one_run_by_turns_leave_one_whole_chain",
    ),
    Mutant(
        "one statement writes no more than one change", "stores/sqlite_transaction.py",
        "if len(self._pending) != 1:", "if not self._pending:",
        "stores/test_contract.py::TestSqlite::"
        "test_a_decision_that_comes_before_the_sweep_records_the_escalation_too",
    ),
    Mutant(
        "a decision or a start compares all columns of what is remembered", "stores/sqlite_transaction.py",
        "compares = transition.event not in ENDS_OF_CALLS", "compares = False",
        "stores/test_sqlite.py::test_no_column_that_was_altered_since_it_was_written_here_is_started",
    ),
    Mutant(
        "a start looks for the newest row of the journal", "stores/sqlite_transaction.py",
        "AND ({_ENTRY}) IS (\n    SELECT", "AND EXISTS (\n    SELECT",
        "stores/test_sqlite.py::test_no_start_is_given_out_where_the_newest_row_of_the_journal_was_altered",
    ),
    Mutant(
        "a chain goes on from what was committed", "stores/sqlite.py",
        "                self._cache, self._schemas = empty, empty.schemas", "                pass",
        "stores/test_sqlite.py::test_no_chain_goes_on_from_a_row_that_was_rolled_back",
    ),
    Mutant(
        "no request is remembered that was not committed", "stores/sqlite.py",
        "                self._cache, self._schemas = empty, empty.schemas\n                if connection",
        "                self._cache, self._schemas = connection.execute(\"ROLLBACK\") and (empty, empty.schemas)\n"
        "                if connection",
        "stores/test_sqlite.py::test_what_was_rolled_back_is_not_remembered_if_ctrl_c_arrives_meanwhile",
    ),
    Mutant(
        "what is committed together is done at once", "stores/sqlite.py",
        'deque(map(setattr, batch, repeat("is_done"), repeat(True)), 0)',
        "for verb in batch:\n                    verb.is_done = True",
        "stores/test_sqlite.py::test_ctrl_c_in_a_loop_behind_a_shared_commit_makes_nobody_do_it_again",
    ),
    Mutant(
        "a row is not certain while it is written", "stores/sqlite_transaction.py",
        "            self._cache.certain.pop(written.request.id, None)", "            pass",
        "stores/test_sqlite.py::test_a_verb_that_is_interrupted_is_whole_or_undone",
    ),
    Mutant(
        "the answer of a transaction on Postgres rests on no remembered row alone", "stores/postgres_transaction.py",
        "        elif self.has_guessed:\n            raise Stale", "        elif False:\n            raise Stale",
        "stores/test_postgres_together.py::test_works_are_told_what_another_process_has_decided",
    ),
    Mutant(
        "a stop is not overtaken by a transaction on Postgres", "stores/postgres_transaction.py",
        "            must_be_absent(self._read_by, self._absent)", "            pass",
        "stores/test_postgres_together.py::test_who_stops_everything_while_works_share_a_commit_is_not_overtaken_by_them",
    ),
    # -- grants, budgets and the stop -------------------------------------------------------------------------------
    Mutant(
        "a grant is kept to its fields", "model/grant.py",
        "if path not in fields or not _holds(condition, fields[path], self.id, path):", "if path not in fields:",
        "stores/test_contract.py::TestMemory::test_a_call_with_other_fields_waits",
    ),
    Mutant(
        "the votes behind a grant meet the quorum", "stores/grants.py",
        "if request.state is State.APPROVED:\n            return found", "if found:\n            return found",
        "stores/test_contract.py::TestMemory::test_a_quorum_of_two_needs_two_people_behind_a_grant",
    ),
    Mutant(
        "a grant that has ended starts nothing", "stores/grants.py",
        'if row is None:\n        return f"the grant {grant_id} no longer exists"', 'if row is not None:\n        return None\n    if row is None:\n        return f"the grant {grant_id} no longer exists"',
        "stores/test_contract.py::TestMemory::test_a_grant_that_was_revoked_stops_what_has_not_started",
    ),
    Mutant(
        "a start looks whether starts are stopped", "stores/program.py",
        "if stop is not None:", "if False:",
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
        "the lock is taken before the first reading", "stores/sqlite.py",
        'connection.execute("BEGIN IMMEDIATE")', 'connection.execute("BEGIN")',
        "gates/test_guards.py::test_nobody_else_can_write_between_a_verbs_reading_and_its_writing",
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
        "nothing is written to a file that was replaced", "stores/sqlite_file.py",
        "    if file != connection.file:", "    if False:",
        "stores/test_store_beside_others.py::test_a_database_that_was_replaced_or_removed_is_read_anew",
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
        "a request stands as its last row left it", "audit/__init__.py",
        "if row.state not in rows.trail.states:", "if False:",
        "stores/test_altered.py::test_a_state_that_no_row_led_to_shows_also_without_digests",
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
        "a pause carries the masked call", "gates/exceptions.py",
        "self.tool_call = ToolCall(call.name, call.arguments)",
        "self.tool_call = ToolCall(call.name, __import__('json').loads(call.form))",
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
    # -- options of a gate --------------------------------------------------------------------------------------------
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
        "        if not tx.verify(request):\n            raise altered(request_id)\n", "",
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
        "a line is on the disk before the verb returns", "stores/jsonl_file.py",
        "            _sync(fd)\n        except", "        except",
        "stores/test_jsonl.py::test_what_could_not_be_written_was_not",
    ),
    # -- how a call ended ---------------------------------------------------------------------------------------------
    Mutant(
        "an error that says nothing about its effect is unknown",
        "gates/execution.py",
        'state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"',
        'state = "unknown" if not isinstance(attempt.raised, Exception) else "failed"',
        "gates/test_ambiguous_outcomes.py::test_a_timeout_reaches_the_caller_with_a_note_and_is_recorded_as_unknown",
    ),
    Mutant(
        "not executed is believed before anything else",
        "gates/ambiguous.py",
        'if name == "sayso.NotExecuted":',
        "if False:",
        "gates/test_ambiguous_errors.py::test_not_executed_says_no_whatever_it_was_raised_from",
    ),
    Mutant(
        "an interruption is ambiguous whatever the function makes of it", "gates/ambiguous.py",
        "(not isinstance(error, Exception) or _is", "(_is",
        "gates/test_ambiguous_outcomes.py::test_a_cancellation_of_which_the_function_makes_another_error_is_unknown",
    ),
    Mutant(
        "an earlier attempt of a client is not forgotten", "gates/ambiguous.py",
        "if _was_tried_before(error, steps):", "if False:",
        "gates/test_ambiguous_errors.py::test_a_later_attempt_of_a_client_that_sent_nothing_does_not_tell_what_the_first_one_did",
    ),
    Mutant(
        "a call whose task group cancelled its other tasks is unknown", "gates/ambiguous.py",
        " or _is_of_task_group(steps)):", "):",
        "gates/test_ambiguous_outcomes.py::test_a_payment_that_a_task_group_cancels_for_its_sibling_is_unknown",
    ),
    Mutant(
        "what comes out of a retry library is unknown", "gates/ambiguous.py",
        "place.startswith(_RETRIES) or ", "",
        "gates/test_ambiguous_errors.py::"
        "test_what_comes_out_of_code_that_tries_again_does_not_tell_what_the_first_attempt_did",
    ),
    Mutant(
        "a client that calls itself again has tried before", "gates/ambiguous.py",
        "if frame.f_code in met:", "if False:",
        "gates/test_ambiguous_sockets.py::"
        "test_a_connection_that_was_refused_is_unknown_if_the_client_has_tried_before",
    ),
    Mutant(
        "an answer that the client rejects may have had an effect", "gates/ambiguous.py",
        "return status in _GRPC_OPEN or is_too_large", "return status in _GRPC_OPEN",
        "gates/test_ambiguous_errors.py::test_an_error_that_says_nothing_about_the_effect_is_ambiguous",
    ),
    Mutant(
        "a call whose tasks run on is unknown", "gates/execution.py",
        "if me is None or attempt.left is not None or attempt.is_without_effect:", "if True:",
        "gates/test_ambiguous_outcomes.py::test_a_call_that_fails_while_a_task_that_it_started_runs_is_unknown",
    ),
    Mutant(
        "a failure is no pause", "gates/options.py",
        'if any(issubclass(end, pause) for end in _NO_PAUSE) or pause.__name__ == "CancelledError":', "if False:",
        "gates/test_options.py::test_what_also_means_a_failure_or_an_interrupt_is_no_pause",
    ),
    Mutant(
        "nobody is asked about a call whose tasks run on", "gates/execution.py",
        "return InTasks(attempt._replace(is_ambiguous=is_ambiguous), partial(_when_one_ended, request, me)).attempt",
        "return attempt._replace(is_ambiguous=is_ambiguous)",
        "gates/test_again.py::test_nobody_is_asked_about_a_call_whose_tasks_go_on",
    ),
    Mutant(
        "nobody is asked about a call whose threads run on", "gates/execution.py",
        "for one, context in [*contexts, *jobs_in_context()]", "for one, context in contexts",
        "gates/test_again.py::test_nobody_is_asked_about_a_call_whose_thread_goes_on",
    ),
    Mutant(
        "a call goes on in what its tasks left", "effects.py",
        "if not self._when_one_ended(partial(self.when_ended, then)):",
        "if not self._when_one_ended(lambda: then(self.attempt)):",
        "gates/test_again.py::test_nobody_is_asked_about_a_call_whose_task_has_left_another_one_or_a_thread",
    ),
    Mutant(
        "a call is not started beside another start that came since", "gates/execution.py",
        "token, by=by, seen=request)", "token, by=by)",
        "gates/test_again.py::test_a_call_that_was_started_while_a_hook_was_asked_is_not_started_beside_it",
    ),
    Mutant(
        "a generator that may have begun is unknown", "effects.py",
        "has_begun = _has_begun(inside)", "has_begun = False",
        "gates/test_outcomes.py::test_a_call_that_returns_what_is_to_run_later_is_not_called_done",
    ),
    Mutant(
        "a call that an unknown call inside it ended is unknown", "gates/ambiguous.py",
        'if is_marked or isinstance(error, also)', "if isinstance(error, also)",
        "gates/test_ambiguous_outcomes.py::test_a_call_that_an_unknown_call_inside_it_ended_is_unknown",
    ),
    Mutant(
        "a call that finds an unknown call inside it is unknown", "gates/ambiguous.py",
        " OutcomeUnknownError", "",
        "gates/test_ambiguous_outcomes.py::test_a_call_that_finds_an_unknown_call_inside_it_is_unknown",
    ),
    Mutant(
        "an error of a signal handler is unknown", "gates/ambiguous.py",
        "if not is_explained and _is_of_signal_handler(steps):", "if False:",
        "gates/test_ambiguous_outcomes.py::test_an_error_of_a_signal_handler_is_unknown_whatever_its_class",
    ),
    Mutant(
        "a redirect that is not followed is unknown", "gates/ambiguous.py",
        "(200 <= status < 400 and status not in _NOT_DONE)", "200 <= status < 300",
        "gates/test_ambiguous_sockets.py::test_an_answer_that_the_client_cannot_use_is_unknown",
    ),
    Mutant(
        "a known outcome is recorded after an interrupt", "gates/execution.py",
        "        with suppress(errors.SaysoError):  # it was recorded, or cannot be\n            yield verb\n", "",
        "gates/test_ctrl_c.py::test_ctrl_c_while_the_end_of_a_call_is_recorded_loses_no_outcome",
    ),
    Mutant(
        "an answer to urllib3's earlier attempt counts", "gates/ambiguous.py",
        'getattr(retries, "history", ()) or ', "",
        "gates/test_ambiguous_errors.py::"
        "test_an_answer_after_attempts_that_urllib3_notes_does_not_tell_what_they_did",
    ),
    Mutant(
        "an approval that ends leaves an unknown start unknown", "model/lifecycle.py",
        'return end._replace(request=new, event="unknown")', "return end",
        "gates/test_ambiguous_outcomes.py::"
        "test_an_approval_that_ends_after_an_unknown_start_and_a_pause_leaves_the_call_unknown",
    ),
    Mutant(
        "nothing is tried again after the approval has ended", "model/lifecycle.py",
        "return is_approved and is_in_time and (", "return is_approved and (",
        "model/test_lifecycle.py::test_nothing_is_tried_again_after_the_approval_has_ended",
    ),
    Mutant(
        "a cancelled approval starts nothing after an unknown start", "model/lifecycle.py",
        "return is_approved and is_in_time and", "return is_in_time and",
        "gates/test_ambiguous_outcomes.py::"
        "test_a_cancelled_approval_starts_nothing_although_an_earlier_start_is_unknown",
    ),
    Mutant(
        "a later start that failed leaves an unknown one unknown", "model/lifecycle.py",
        'outcome.state == "failed" and execution.unresolved', "False",
        "stores/test_contract.py::TestMemory::test_only_an_idempotent_call_is_started_again_after_an_unknown_outcome",
    ),
    Mutant(
        "a wait in a loop of a pool's thread ends with the thread's task", "gates/wait.py",
        "if threading.current_thread() is threading.main_thread():\n            return\n        self._job",
        "if scope.current_task() is not None:\n            return\n        self._job",
        "gates/test_waits_end.py::test_a_wait_in_an_event_loop_of_a_pools_thread_ends_when_the_task_of_the_thread_is_cancelled",
    ),
    Mutant(
        "a step whose run is left while its approval can be undone does not start", "gates/caller.py",
        "self.begin(request)  # somebody", "# somebody",
        "runs/test_broken_off.py::test_a_stream_that_is_left_while_its_approval_can_be_undone_starts_nothing",
    ),
    Mutant(
        "a call whose wait ended during its start does not run", "gates/wait.py",
        "self.check(request)  # a retry", "# a retry",
        "gates/test_waits_end.py::test_a_call_does_not_run_when_its_task_is_cancelled_while_the_store_records_the_start",
    ),
    # -- keys and effects ----------------------------------------------------------------------------------------------
    Mutant(
        "a key finds no other call", "gates/find_or_ask.py",
        "if found.subject.digest != digest():", "if False:",
        "gates/test_held.py::test_a_key_with_other_arguments_or_another_tool_is_refused",
    ),
    Mutant(
        "a start takes the effect of its arguments", "gates/execution.py",
        "if effect != started.effect:", "if False:",
        "gates/test_held.py::test_a_start_takes_no_effect_but_the_one_of_its_arguments",
    ),
    Mutant(
        "an edit that moves the effect goes back", "gates/execution.py",
        "problems = [] if effect == request.effect else", "problems = [] if True else",
        "gates/test_held.py::test_an_edit_of_a_gated_function_that_moves_the_effect_goes_back_and_spends_no_approval",
    ),
    # -- ids ---------------------------------------------------------------------------------------------------------
    Mutant(
        "an id has 128 random bits", "model/ids.py",
        "os.urandom(16).hex()", "os.urandom(8).hex()",
        "promises/test_12_ids_are_random.py::test_12_ids_are_random_and_knowing_one_gives_no_right",
    ),
    # -- what was altered, and what failed ----------------------------------------------------------------------------
    Mutant(
        "a budget per run has a run with a name", "gates/hooks.py",
        'if not site.has_name and any(one.per == "run" for one in verdict.budgets):', "if False:",
        "gates/test_grants.py::test_a_budget_per_run_lets_nothing_through_outside_of_a_named_run",
    ),
    Mutant(
        "a call does not wait past its timeout for another start of its key", "gates/wait.py",
        "if after.state is State.RUNNING else after", "if request.key is None else after",
        "gates/test_block.py::test_a_call_with_a_key_waits_for_the_one_that_runs_until_its_timeout",
    ),
    Mutant(
        "a start that is refused for good is not tried again", "gates/gated_call.py",
        "if after == request:", "if False:",
        "gates/test_grants.py::test_an_unknown_call_whose_grant_has_ended_is_refused_once",
    ),
    Mutant(
        "a start that ran nothing frees no effect of an earlier one", "gates/execution.py",
        'Outcome("suspended") if is_begun else ', "",
        "promises/test_15_an_effect_starts_once.py::"
        "test_15_a_call_that_stopped_half_way_frees_no_effect_where_its_next_start_runs_nothing",
    ),
    Mutant(
        "a budget gets back nothing that an earlier start may have used", "stores/grants.py",
        "request.execution.starts == 1", "True",
        "gates/test_grants.py::test_a_budget_gets_back_only_what_no_start_can_have_used",
    ),
    Mutant(
        "a budget gets nothing back by the word of a call inside", "gates/ambiguous.py",
        'or "_sayso_inner" in error.__dict__:', "or False:",
        "gates/test_grants.py::test_a_budget_gets_nothing_back_by_the_word_of_a_call_inside",
    ),
    Mutant(
        "what has ended before it is recorded is approved by nobody", "stores/grants.py",
        " or lifecycle.is_due(request, tx.now()):", ":",
        "stores/test_contract.py::TestMemory::"
        "test_a_call_that_has_ended_before_it_is_recorded_is_approved_by_no_budget",
    ),
    Mutant(
        "a claim keeps a request for one person", "model/lifecycle.py",
        "if not has_voted and not (is_vote and request.missing_votes > 1):", "if False:",
        "model/test_lifecycle.py::test_a_claim_keeps_others_out_until_it_is_released",
    ),
    Mutant(
        "a vote on other terms does not pass a claim", "model/lifecycle.py",
        'is_plain = verb == "approve" and edited is None and not has_grant', 'is_plain = verb == "approve"',
        "model/test_lifecycle.py::test_a_claim_keeps_one_approval_of_a_quorum_and_leaves_the_others",
    ),
    Mutant(
        "a claim ends with the wait of a call that is unknown", "model/lifecycle.py",
        "new = _evolve(request, state=State.UNKNOWN, decision=decision, claimed_by=None, claimed_at=None)",
        "new = _evolve(request, state=State.UNKNOWN, decision=decision)",
        "model/test_lifecycle.py::test_a_claim_ends_with_the_wait_of_a_call_that_is_unknown",
    ),
    Mutant(
        "more people may decide after the escalation only", "model/lifecycle.py",
        "if escalation is None or not is_waiting or now < request.created_at + escalation.after:",
        "if escalation is None or not is_waiting:",
        "stores/test_contract.py::TestMemory::test_until_an_escalation_has_come_it_lets_nobody_in",
    ),
    Mutant(
        "a request that waits again is escalated when its time has come", "stores/transaction.py",
        "    if transition.event in _WAITS_AGAIN:", "    if False:",
        "stores/test_contract.py::TestMemory::"
        "test_a_request_that_waits_again_after_the_time_of_its_escalation_is_escalated",
    ),
    Mutant(
        "only the holder of a run saves it", "stores/transaction.py",
        "if known is not None and known.holder != saved.run.holder:", "if False:",
        "stores/test_contract.py::TestMemory::test_a_run_that_was_handed_back_is_taken_with_its_steps",
    ),
    Mutant(
        "a run is not taken from a holder whose lease lasts", "stores/program.py",
        "if run.holder not in {holder, gone} and not workers.may_take(run.holder, run.updated_at, now):", "if False:",
        "stores/test_contract.py::TestMemory::test_of_eight_who_take_a_run_at_once_one_has_it",
    ),
    Mutant(
        "a run waits for the outcome of a call inside its handler", "runs/decisions.py",
        'if request.run_id == history.run_id and request.state not in _OPEN:', "if False:",
        "runs/test_worker.py::"
        "test_a_run_goes_on_when_the_unknown_outcome_of_a_call_inside_its_handler_is_resolved",
    ),
    Mutant(
        "by hand, the program says how a call ended", "gates/held.py",
        "replace(self._gate, suspends=())", "self._gate",
        "gates/test_held.py::test_by_hand_the_program_says_how_a_call_ended_also_with_an_exception_that_suspends",
    ),
    Mutant(
        "who is cancelled in a thread takes the approval back", "gates/held.py",
        "is_cancelled |= isinstance(error, exceptions.ConfirmationCancelled) and error.confirmation_id == request.id",
        "is_cancelled |= False",
        "gates/test_held.py::test_what_nobody_waits_for_in_a_thread_is_taken_back_although_it_was_approved",
    ),
    Mutant(
        "by hand, nothing starts that nobody waits for", "gates/held.py",
        "waiter.begin(request)", "pass",
        "gates/test_held.py::test_by_hand_nothing_starts_that_nobody_waits_for_any_more",
    ),
    Mutant(
        "an allowed step of a run does not start that nobody waits for", "runs/engine.py",
        "self._step.history.check_going()\n        self._step.begin", "self._step.begin",
        "runs/test_broken_off.py::test_an_allowed_call_whose_run_is_left_while_its_rule_decides_does_not_start",
    ),
    Mutant(
        "an approved step of a run does not start that nobody waits for", "runs/engine.py",
        "self._step.history.check_going()\n        _note_request", "_note_request",
        "runs/test_broken_off.py::test_an_allowed_call_whose_run_is_left_while_its_rule_decides_does_not_start",
    ),
    Mutant(
        "no other function of the name goes on with a call that has paused", "gates/execution.py",
        "if not (after.holds or gate.is_self_contained):", "if True:",
        "gates/test_same_name.py::test_function_with_another_object_is_refused_after_the_call_has_paused",
    ),
    Mutant(
        "a call that did not wait leaves no approval behind", "gates/wait.py",
        "if self._block is not None and self._request is None:", "if False:",
        "gates/test_waits_end.py::test_a_call_that_finds_its_approval_at_once_leaves_none_behind_either",
    ),
    Mutant(
        "a decision that has ended starts nothing again", "gates/execution.py",
        " and not caller.is_over(request)", "",
        "runs/test_ends.py::test_a_decision_that_ends_starts_no_idempotent_call_whose_outcome_is_unknown",
    ),
    Mutant(
        "nothing starts again that now needs a person", "gates/execution.py",
        " and not (gate.always and is_without_person)", "",
        "gates/test_grants.py"
        "::test_an_unknown_call_that_no_person_approved_does_not_start_again_where_one_is_now_needed",
    ),
    Mutant(
        "an altered grant starts nothing", "stores/grants.py",
        "if not _is_as_written(tx, GRANT if grant is not None else ENDED_GRANT, grant_id):", "if False:",
        "stores/test_contract.py::TestSqlite::test_a_grant_that_was_altered_approves_nothing_and_starts_nothing",
    ),
    Mutant(
        "a work that failed leaves nothing behind", "stores/base.py",
        "if view.has_written and error is not view.refusal:", "if False:",
        "server/test_writer.py::test_the_verbs_of_one_work_are_one_transaction",
    ),
]  # fmt: skip
