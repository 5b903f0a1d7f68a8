"""The guards, one mutant for each: the guard's text, what stands there without it, and the test that must turn red.

The text stands exactly once in its file (`tests/unit/test_mutants_list.py` keeps it so). A guard that gets a mutant
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


_LIFECYCLE, _CONTRACT = "unit/test_lifecycle.py::", "contract/test_stores.py::"
_GUARDS, _PROMISES, _SQLITE = "unit/test_guards.py::", "acceptance/test_promises.py::", "unit/test_sqlite.py::"
_WORKER, _SCOPE, _SHOW = "unit/test_worker.py::", "integration/test_scope.py::", "unit/test_show.py::"
_REDACTION, _CANONICAL = "unit/test_redaction.py::", "unit/test_canonical.py::"
_PEERS, _FACE = "integration/test_weaknesses_of_peers.py::", "integration/test_confirmation_face.py::"

MUTANTS = [
    # -- who starts, and who ends -----------------------------------------------------------------------------------
    Mutant(
        "only an approved call is started", "model/lifecycle.py",
        "if (request.state is not State.APPROVED and not again) or is_spent:",
        "if request.state is State.PENDING:",
        _CONTRACT + "TestMemory::test_of_eight_who_start_at_once_one_runs",
    ),
    Mutant(
        "only an approved call is started, on disk", "model/lifecycle.py",
        "if (request.state is not State.APPROVED and not again) or is_spent:",
        "if request.state is State.PENDING:",
        _PROMISES + "test_2_one_approval_starts_its_call_at_most_once",
    ),
    Mutant(
        "only the last token ends a call", "model/lifecycle.py",
        "execution.token != token or ", "",
        _LIFECYCLE + "test_only_the_last_token_ends_a_call",
    ),
    Mutant(
        "an outcome stands", "model/lifecycle.py",
        " or request.state not in {State.RUNNING, State.UNKNOWN}:", ":",
        _LIFECYCLE + "test_a_final_state_never_changes",
    ),
    Mutant(
        "an unknown outcome is not retried", "model/lifecycle.py",
        "again = request.state is State.UNKNOWN and request.idempotent", "again = request.state is State.UNKNOWN",
        _LIFECYCLE + "test_retries_give_no_start_after_an_unknown_outcome",
    ),
    Mutant(
        "an idempotent call keeps to its approval's end", "model/lifecycle.py",
        "if again and request.approval_expires_at is not None and now >= request.approval_expires_at:", "if False:",
        _LIFECYCLE + "test_an_idempotent_call_is_not_started_again_after_its_approval_ended",
    ),
    Mutant(
        "retries are counted", "model/lifecycle.py",
        "execution.attempt <= request.retries", "request.retries > 0",
        _LIFECYCLE + "test_a_failed_call_has_the_starts_that_the_gate_gives_it",
    ),
    Mutant(
        "a failed call is spent without retries", "model/lifecycle.py",
        "execution.attempt <= request.retries", "execution.attempt <= request.retries + 1",
        _PEERS + "test_exception_spends_the_approval",
    ),
    Mutant(
        "a spent approval is not found again", "model/lifecycle.py",
        'state, holds = State(outcome.state), outcome.state == "unknown"', "state, holds = State(outcome.state), True",
        _LIFECYCLE + "test_a_spent_approval_no_longer_holds_and_an_unknown_one_does",
    ),
    Mutant(
        "only an unknown outcome is resolved", "model/lifecycle.py",
        "if (request.state is not State.UNKNOWN and not is_forced) or execution is None:", "if execution is None:",
        _LIFECYCLE + "test_there_is_this_way_and_no_other",
    ),
    Mutant(
        "what is running is not withdrawn", "model/lifecycle.py",
        " or request.state in {State.RUNNING, State.UNKNOWN}:", ":",
        _CONTRACT + "TestMemory::test_a_program_takes_back_what_it_asked_and_forgets_a_no",
    ),
    # -- ends -------------------------------------------------------------------------------------------------------
    Mutant(
        "the end of a request is too late", "model/lifecycle.py",
        "return now >= request.expires_at", "return now > request.expires_at",
        _LIFECYCLE + "test_an_end_that_is_reached_is_too_late",
    ),
    Mutant(
        "the end of an approval is too late", "model/lifecycle.py",
        "return request.approval_expires_at is not None and now >= request.approval_expires_at",
        "return request.approval_expires_at is not None and now > request.approval_expires_at",
        _LIFECYCLE + "test_an_end_that_is_reached_is_too_late",
    ),
    Mutant(
        "an approval has an end", "model/lifecycle.py",
        "return request.approval_expires_at is not None and now >= request.approval_expires_at", "return False",
        _PROMISES + "test_6_everything_expires_and_nothing_into_an_approval",
    ),
    Mutant(
        "what expired is not found again", "model/lifecycle.py",
        "state=State.EXPIRED, holds=False", "state=State.EXPIRED",
        _CONTRACT + "TestMemory::test_a_no_holds_and_a_spent_approval_does_not",
    ),
    Mutant(
        "an end is looked at before each change", "stores/base.py",
        "expired = lifecycle.expire(request, now)", "expired = None",
        _CONTRACT + "TestMemory::test_an_approval_can_be_started_until_its_end_and_not_at_it",
    ),
    Mutant(
        "an end that a refused verb met is written", "stores/base.py",
        "return refusal  # raised", "raise refusal  # raised",
        _GUARDS + "test_an_end_that_a_refused_verb_met_stays_written",
    ),
    Mutant(
        "asking again after the end asks anew", "stores/base.py",
        "expired = lifecycle.expire(held, tx.now())", "expired = None",
        _CONTRACT + "TestMemory::test_asking_again_after_the_end_asks_anew",
    ),
    Mutant(
        "an end is settled before the gate answers", "gates/check.py",
        "if request.state is State.RUNNING or is_due(request, clock.now()):", "if request.state is State.RUNNING:",
        _PEERS + "test_record_says_who_when_where_and_until_when",
    ),
    # -- people -----------------------------------------------------------------------------------------------------
    Mutant(
        "the requester does not decide", "model/lifecycle.py",
        "barred = (request.requester, request.on_behalf_of)", "barred = (request.on_behalf_of,)",
        _LIFECYCLE + "test_who_asked_cannot_decide",
    ),
    Mutant(
        "nor whoever it acts for", "model/lifecycle.py",
        "barred = (request.requester, request.on_behalf_of)", "barred = (request.requester,)",
        _PROMISES + "test_4_the_requester_cannot_decide_its_own_request",
    ),
    Mutant(
        "nor says how its call ended", "model/lifecycle.py",
        "if roles is not None:", "if False:",
        _LIFECYCLE + "test_who_asked_cannot_care_for_the_request_either",
    ),
    Mutant(
        "a run inside another acts for the same person", "waiting/scope.py",
        "if person is None and around is not None:", "if False:",
        _GUARDS + "test_a_run_inside_another_acts_for_the_same_person",
    ),
    Mutant(
        "a role is needed", "model/lifecycle.py",
        "if not request.quorum.admits(roles):", "if False:",
        _LIFECYCLE + "test_a_role_is_needed_for_everything_that_a_reviewer_does",
    ),
    Mutant(
        "one of the roles, not any role", "model/quorum.py",
        "return not self.roles or any(role in self.roles for role in roles)",
        "return not self.roles or any(True for role in roles)",
        _LIFECYCLE + "test_a_role_is_needed_for_everything_that_a_reviewer_does",
    ),
    Mutant(
        "a claim keeps others out", "model/lifecycle.py",
        " and not by.is_same(request.claimed_by):", " and False:",
        _LIFECYCLE + "test_a_claim_keeps_others_out_until_it_is_released",
    ),
    Mutant(
        "nobody votes twice", "model/lifecycle.py",
        "if any(vote.by.is_same(decision.by) for vote in votes):", "if False:",
        _LIFECYCLE + "test_a_quorum_is_met_by_as_many_distinct_people_as_it_names",
    ),
    Mutant(
        "votes are counted by person", "model/quorum.py",
        "if not any(voter.is_same(other) for other in distinct):", "if voter not in distinct:",
        _GUARDS + "test_one_person_in_two_spellings_counts_once",
    ),
    Mutant(
        "Ada is ada", "model/reviewer.py",
        'unicodedata.normalize("NFKC", text).casefold())', 'unicodedata.normalize("NFKC", text))',
        _GUARDS + "test_one_person_in_two_spellings_counts_once",
    ),
    Mutant(
        "a full-width letter is the letter", "model/reviewer.py",
        'return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())',
        "return text.casefold()",
        _PROMISES + "test_5_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a name hides nothing", "model/reviewer.py",
        'if any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in text):', "if False:",
        _GUARDS + "test_a_name_that_hides_something_names_nobody",
    ),
    # -- decisions --------------------------------------------------------------------------------------------------
    Mutant(
        "an edit begins the count anew", "model/lifecycle.py",
        '        votes = ()\n        detail["edited"] = True', '        votes = request.votes\n        detail["edited"] = True',
        _LIFECYCLE + "test_an_edit_resets_the_votes_and_counts_as_one",
    ),
    Mutant(
        "what was looked at is what stands", "model/lifecycle.py",
        "if seen is not None and seen != current:", "if False:",
        _LIFECYCLE + "test_what_is_approved_is_what_the_last_voter_saw",
    ),
    Mutant(
        "a reviewer's word on what was looked at counts", "reviews.py",
        "return self.store.decide(whole, decision, roles=who.roles, seen=seen, edited=edited)",
        "return self.store.decide(whole, decision, roles=who.roles, seen=None, edited=edited)",
        _GUARDS + "test_who_names_what_was_looked_at_decides_that_alone",
    ),
    Mutant(
        "decided is decided", "model/lifecycle.py",
        'if not (decision.verb == "cancel" and request.state is State.APPROVED):', "if False:",
        _PROMISES + "test_7_decided_is_decided",
    ),
    Mutant(
        "a running call is not cancelled", "model/lifecycle.py",
        'if not (decision.verb == "cancel" and request.state is State.APPROVED):', 'if decision.verb != "cancel":',
        _LIFECYCLE + "test_there_is_this_way_and_no_other",
    ),
    Mutant(
        "a quorum is met before the call is approved", "model/lifecycle.py",
        "    if missing:\n", "    if False:\n",
        _CONTRACT + "TestMemory::test_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a question is not approved", "model/lifecycle.py",
        'if request.kind == "question" and verb in {"approve", "feedback"}:', "if False:",
        _LIFECYCLE + "test_a_question_takes_no_such_decision",
    ),
    Mutant(
        "an answer fits the question", "reviews.py",
        'shape_of(request).validate({"answer": value})', '{"answer": value}',
        _GUARDS + "test_an_answer_that_does_not_fit_decides_nothing",
    ),
    Mutant(
        "an edit fits the function", "model/edit.py",
        "else value for name, value in shape.validate(values).items()}",
        "else value for name, value in values.items()}",
        _PEERS + "test_edit_is_validated_before_it_counts",
    ),
    Mutant(
        "a mask left as shown is no edit", "model/edit.py",
        "return real[name]", "return value",
        _GUARDS + "test_a_masked_value_that_is_left_as_shown_stays_what_it_is",
    ),
    Mutant(
        "an edited call is masked, too", "model/edit.py",
        'masked = cast("dict[str, Any]", redaction.mask(tree))', "masked = tree",
        _PROMISES + "test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    # -- what is asked, and where -----------------------------------------------------------------------------------
    Mutant(
        "None, 0 and '' are no answer of a rule", "policy.py",
        "    match answer:\n", "    match answer if isinstance(answer, Verdict) else bool(answer):\n",
        _PROMISES + "test_8_any_error_means_not_run",
    ),
    Mutant(
        "None alone lets nothing through", "policy.py",
        "        case False:\n", "        case False | None:\n",
        _PROMISES + "test_8_any_error_means_not_run",
    ),
    Mutant(
        "a rule that fails lets nothing through", "gates/check.py",
        "refuse(gate, describe(rule), error, arguments)", "return verdict_of(False, describe(rule))",
        _PROMISES + "test_8_any_error_means_not_run",
    ),
    Mutant(
        "a hook settles only what it says plainly", "gates/check.py",
        "if answer is None or isinstance(answer, bool | Happened):", "if answer is not gate:",
        _GUARDS + "test_a_hook_that_says_something_else_settles_nothing",
    ),
    Mutant(
        "what no other process could read is refused", "gates/check.py",
        "canonical.check_round_trip(form, gate.shape.classes)", "pass",
        _GUARDS + "test_a_call_that_no_other_process_could_run_is_refused_when_asked",
    ),
    Mutant(
        "one open request for one call in one run", "stores/base.py",
        "if held is not None:", "if False:",
        _CONTRACT + "TestMemory::test_asking_the_same_in_the_same_run_finds_the_request",
    ),
    Mutant(
        "what was decided from here is found", "gates/check.py",
        "if adopted is not None:", "if False:",
        _SCOPE + "test_pause_of_a_task_is_answered_by_who_awaited_it",
    ),
    Mutant(
        "siblings share nothing", "waiting/scope.py",
        "return owner.task is not None and owner.task() is task", "return True",
        _SCOPE + "test_sibling_tasks_share_nothing",
    ),
    Mutant(
        "a child does not grant its parent", "waiting/scope.py",
        "return owner.task is not None and owner.task() is task", "return owner.task is None or owner.task() is task",
        _SCOPE + "test_pause_of_one_loop_is_answered_outside_and_found_by_the_next",
    ),
    Mutant(
        "a run is part of the fingerprint", "model/fingerprint.py",
        'whole = _begun("sayso/run/1", run_id).copy()', 'whole = _begun("sayso/run/1").copy()',
        _SCOPE + "test_other_runs_decide_nothing_here",
    ),
    Mutant(
        "the parts of a digest are framed", "model/fingerprint.py",
        'b"%d:%b" % (len(part), part) for part in parts', "part for part in parts",
        _GUARDS + "test_the_parts_of_a_digest_cannot_be_shifted",
    ),
    Mutant(
        "a tuple is no list", "model/canonical/form.py",
        'return {"$tuple": self._items(value)}', "return self._items(value)",
        _CANONICAL + "test_different_acts_have_different_digests",
    ),
    Mutant(
        "a dict is no tag", "model/canonical/form.py",
        'return {"$dict": members} if is_wrapped else members', "return members",
        _CANONICAL + "test_a_golden_vector_is_written_as_it_was",
    ),
    Mutant(
        "keys are texts", "model/canonical/form.py",
        "if type(key) is not str:\n", "if False:\n",
        _CANONICAL + "test_what_has_no_form_is_refused_by_the_name_of_its_argument",
    ),
    Mutant(
        "depth has an end", "model/canonical/form.py",
        "if len(self.path) > LIMIT_DEPTH:", "if False:",
        _CANONICAL + "test_what_has_no_form_is_refused_by_the_name_of_its_argument",
    ),
    # -- what runs --------------------------------------------------------------------------------------------------
    Mutant(
        "what runs has the digest that was asked", "gates/execute.py",
        "if digest != call.digest or fingerprint(request.run_id, digest) != approved:", "if False:",
        _PROMISES + "test_1_what_runs_is_what_was_shown_and_approved",
    ),
    Mutant(
        "what runs has the fingerprint that was approved", "gates/execute.py",
        " or fingerprint(request.run_id, digest) != approved:", ":",
        _GUARDS + "test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "a refused record is not left running", "gates/execute.py",
        "if isinstance(refusal, errors.AlteredRequestError):", "if False:",
        _PROMISES + "test_1_what_runs_is_what_was_shown_and_approved",
    ),
    Mutant(
        "an edit passes the function's own validators", "gates/execute.py",
        "if request.edited is not None:", "if False:",
        _GUARDS + "test_an_edit_made_without_the_functions_validators_is_validated_before_it_runs",
    ),
    Mutant(
        "a call that was broken off is unknown", "gates/execute.py",
        'state = "failed" if isinstance(attempt.raised, Exception) else "unknown"', 'state = "failed"',
        _GUARDS + "test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "Ctrl-C in a call is recorded", "drive.py",
        "except BaseException as error:  # noqa: BLE001  user code; recorded by",
        "except Exception as error:  # noqa: BLE001  user code; recorded by",
        _GUARDS + "test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "a coroutine thrown away is recorded", "drive.py",
        "return drive(effects, Attempt(None, closed))", "raise",
        _GUARDS + "test_a_coroutine_that_is_thrown_away_in_mid_call_is_unknown",
    ),
    Mutant(
        "a verb that has begun ends", "drive.py",
        "            cancelled = error\n", "            raise\n",
        _GUARDS + "test_a_cancelled_task_waits_for_the_end_of_a_verb_that_has_begun",
    ),
    Mutant(
        "an outcome that is not recorded is told", "gates/execute.py",
        "raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error", "return",
        _GUARDS + "test_a_call_that_ran_and_could_not_be_recorded_says_so_with_its_result",
    ),
    # -- stores -----------------------------------------------------------------------------------------------------
    Mutant(
        "a worker that lives is not given up", "stores/base.py",
        " and worker.is_gone(request.execution.worker):", ":",
        _CONTRACT + "TestMemory::test_a_call_whose_process_lives_stays_running",
    ),
    Mutant(
        "a worker that is gone is given up", "stores/base.py",
        " and worker.is_gone(request.execution.worker):", " and False:",
        _PROMISES + "test_3_an_outcome_that_cannot_be_known_is_unknown_and_not_retried",
    ),
    Mutant(
        "a process number that was given out again", "stores/worker.py",
        "return not _exists(pid) or is_another or _is_dead(pid)", "return not _exists(pid) or _is_dead(pid)",
        _WORKER + "test_process_number_given_out_again_is_not_taken_for_the_dead_worker",
    ),
    Mutant(
        "a worker that nobody reaped is gone", "stores/worker.py",
        "return not _exists(pid) or is_another or _is_dead(pid)", "return not _exists(pid) or is_another",
        _WORKER + "test_killed_process_is_gone_before_anybody_reaps_it",
    ),
    Mutant(
        "nothing is concluded about another machine", "stores/worker.py",
        " or theirs[0] != mine[0]", "",
        _WORKER + "test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name",
    ),
    Mutant(
        "nothing is concluded about another namespace", "stores/worker.py",
        " or theirs[2] != mine[2]:", ":",
        _WORKER + "test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name",
    ),
    Mutant(
        "one verb at a time, in memory", "stores/memory.py",
        "        with self._lock:\n            tx = _Memory(self)", "        with threading.RLock():\n            tx = _Memory(self)",
        _GUARDS + "test_in_memory_one_verb_ends_before_the_next_begins",
    ),
    Mutant(
        "a refusal is raised, in memory", "stores/memory.py",
        "        if isinstance(result, errors.SaysoError):\n            raise result\n", "",
        _CONTRACT + "TestMemory::test_only_an_approved_call_is_started",
    ),
    Mutant(
        "what no longer holds is not found, in memory", "stores/memory.py",
        "elif self.holders.get(request.fingerprint) == request.id:", "elif False:",
        _CONTRACT + "TestMemory::test_a_no_holds_and_a_spent_approval_does_not",
    ),
    Mutant(
        "a row is changed only as it was seen", "stores/sqlite_transaction.py",
        "WHERE id = ? AND link = ?", "WHERE id = ? AND ? IS NOT NULL",
        _GUARDS + "test_a_row_that_was_changed_elsewhere_is_not_overwritten_from_memory",
    ),
    Mutant(
        "a change that missed its row is no change", "stores/sqlite_transaction.py",
        ".rowcount != 1:", ".rowcount < 0:",
        _GUARDS + "test_a_row_that_was_changed_elsewhere_is_not_overwritten_from_memory",
    ),
    Mutant(
        "a place in the chain is taken once", "stores/sqlite_transaction.py",
        "            raise Stale from None", "            return",
        _CONTRACT + "TestSqlite::test_what_a_verb_returned_stands_for_every_other_process",
    ),
    Mutant(
        "no answer from memory alone", "stores/sqlite.py",
        "if tx.has_guessed and not tx.changed:", "if False:",
        _GUARDS + "test_an_answer_is_never_given_from_memory_alone",
    ),
    Mutant(
        "the lock is taken before the first reading", "stores/sqlite.py",
        'connection.execute("BEGIN IMMEDIATE")', 'connection.execute("BEGIN")',
        _GUARDS + "test_nobody_else_can_write_between_a_verbs_reading_and_its_writing",
    ),
    Mutant(
        "what was committed is not done again", "stores/sqlite.py",
        '            is_ready = True\n            connection.execute("COMMIT")',
        '            connection.execute("COMMIT")\n            is_ready = True',
        _SQLITE + "test_who_waits_behind_an_interrupted_verb_is_served_once",
    ),
    Mutant(
        "who was interrupted leaves the queue", "stores/sqlite.py",
        "op.done = True  # interrupted: nobody waits for it any more", "pass",
        _SQLITE + "test_who_waits_behind_an_interrupted_verb_is_served_once",
    ),
    Mutant(
        "what was broken off is rolled back", "stores/sqlite.py",
        '                connection.execute("ROLLBACK")', "                pass",
        _SQLITE + "test_a_verb_that_is_interrupted_is_whole_or_undone",
    ),
    Mutant(
        "a verb that fails among others fails alone", "stores/sqlite.py",
        "        if len(batch) == 1 or not self._commit(batch):", "        if self._commit(batch) is None:",
        _SQLITE + "test_a_verb_that_fails_among_others_fails_alone",
    ),
    Mutant(
        "a commit is synced", "stores/sqlite.py",
        '"PRAGMA synchronous = FULL"', '"PRAGMA synchronous = NORMAL"',
        _SQLITE + "test_every_commit_is_synced",
    ),
    Mutant(
        "the file is its owner's", "stores/sqlite.py",
        "os.O_RDWR, 0o600)", "os.O_RDWR, 0o644)",
        _SQLITE + "test_only_its_owner_can_read_the_file_and_those_beside_it",
    ),
    Mutant(
        "a forked child begins afresh", "stores/sqlite.py",
        "        self._bell = Bell()\n        self._begin_afresh()\n\n    # -- connections", "        self._bell = Bell()\n\n    # -- connections",
        _GUARDS + "test_a_forked_child_takes_over_no_lock_and_no_connection",
    ),
    Mutant(
        "a sealed text belongs to its request", "stores/seal.py",
        "    return AESGCM(raw)",
        "    return type('Unbound', (AESGCM,), {name: (lambda self, nonce, text, _, do=getattr(AESGCM, name):"
        " do(self, nonce, text, None)) for name in ('encrypt', 'decrypt')})(raw)",
        _SQLITE + "test_a_sealed_text_cannot_be_moved_to_another_request",
    ),
    Mutant(
        "nothing sealed is read without the key", "stores/seal.py",
        "        if self.is_open:\n            raise errors.StoreSealedError(", "        if False:\n            raise errors.StoreSealedError(",
        _SQLITE + "test_without_the_key_nothing_sealed_is_read_or_decided",
    ),
    # -- the journal ------------------------------------------------------------------------------------------------
    Mutant(
        "a link covers its row", "audit.py",
        "if chained(before, *entry[:-1]).link != entry.link:", "if False:",
        _PROMISES + "test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a link covers the detail", "model/entry.py",
        "dumps((before, run_id, seq, at, request_id, event, by, channel, detail))",
        "dumps((before, run_id, seq, at, request_id, event, by, channel))",
        _PROMISES + "test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a link covers the row before", "model/entry.py",
        "dumps((before, run_id, seq, at, request_id, event, by, channel, detail))",
        "dumps((run_id, seq, at, request_id, event, by, channel, detail))",
        _PROMISES + "test_10_every_step_leaves_a_chained_record",
    ),
    # -- what is shown ----------------------------------------------------------------------------------------------
    Mutant(
        "a secret below a name is masked", "model/redaction.py",
        "            elif isinstance(value, _NESTED):\n                shown = self.mask(value)\n", "",
        _REDACTION + "test_secret_is_absent_at_every_depth",
    ),
    Mutant(
        "a secret in a list is masked", "model/redaction.py",
        "masked = [self.mask(item) if isinstance(item, _NESTED) else item for item in items]", "masked = items",
        _PROMISES + "test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "what is not known is masked whole", "model/redaction.py",
        "return tree if tag in _SCALARS else MASK", "return tree",
        _REDACTION + "test_tag_that_is_not_known_is_masked_whole",
    ),
    Mutant(
        "a redactor that fails shows nothing", "model/redaction.py",
        "        return dict(FAILED)\n    if inspect", "        return arguments\n    if inspect",
        _REDACTION + "test_redactor_that_fails_shows_a_placeholder_and_never_the_secret",
    ),
    Mutant(
        "the error of a hook quotes no secret", "gates/words.py",
        'f"raised {told.error_text(error, secrets)}") from cause', 'f"raised {error!r}") from cause',
        _PROMISES + "test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "a pause carries the masked call", "waiting/signals.py",
        "return ToolCall(subject.name, subject.arguments)",
        "return ToolCall(subject.name, __import__('json').loads(subject.form))",
        _PROMISES + "test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "what moves or hides is written out", "model/show/escape.py",
        "return not character.isprintable() or _BLANK_ONE.match(character) is not None",
        "return _BLANK_ONE.match(character) is not None",
        _PROMISES + "test_9_the_reviewer_sees_what_we_draw_and_the_agents_words_marked",
    ),
    Mutant(
        "what looks like nothing is written out", "model/show/escape.py",
        "return not character.isprintable() or _BLANK_ONE.match(character) is not None",
        "return not character.isprintable()",
        _SHOW + "test_no_code_point_hides",
    ),
    Mutant(
        "no mark is drawn onto our own text", "model/show/escape.py",
        'elif unicodedata.category(text[0])[0] == "M":', "elif False:",
        _SHOW + "test_no_code_point_hides",
    ),
    Mutant(
        "a text cannot write an escape itself", "model/show/escape.py",
        'if text.isprintable() and "<U+" not in text:', "if text.isprintable():",
        _SHOW + "test_what_hides_is_written_out",
    ),
]  # fmt: skip
