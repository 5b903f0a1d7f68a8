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
_SEAL, _AUDIT = "unit/test_seal.py::", "unit/test_audit.py::"
_SAME_NAME = "integration/test_same_name.py::"
_REVIEWER, _NAN, _CONFIG = "unit/test_reviewer.py::", "unit/test_nan.py::", "unit/test_config.py::"
_CARD = "unit/test_card.py::"
_SHOWN, _NEEDS, _MOVING = (
    "integration/test_shown.py::",
    "integration/test_needs.py::",
    "integration/test_moving_arguments.py::",
)
_FOR, _PROPOSED, _BEHIND = (
    "integration/test_acting_for.py::",
    "integration/test_proposed.py::",
    "integration/test_left_behind.py::",
)
_JSONL = "integration/test_jsonl.py::"
_REACT, _STATES = "integration/test_react.py::", "integration/test_react_states.py::"
_KINDS, _LIES = "integration/test_runs_kinds.py::", "integration/test_runs_attacks.py::"
_ASKED, _BROKEN_OFF = "integration/test_runs_questions.py::", "integration/test_runs_broken_off.py::"
_SAID, _RULES = "integration/test_runs_decisions.py::", "integration/test_runs_rules.py::"
_ENDS, _ALONE = "integration/test_runs_ends.py::", "integration/test_runs_guards.py::"
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
    # -- people -----------------------------------------------------------------------------------------------------
    Mutant(
        "the requester does not decide", "model/lifecycle.py",
        "by.is_same(request.requester) or any(", "any(",
        _LIFECYCLE + "test_who_asked_cannot_decide",
    ),
    Mutant(
        "nor whoever it acts for", "model/lifecycle.py",
        "if by.is_same(request.requester) or any(by.may_be(person) for person in request.acts_for):",
        "if by.is_same(request.requester):",
        _PROMISES + "test_4_the_requester_cannot_decide_its_own_request",
    ),
    Mutant(
        "nor says how its call ended", "model/lifecycle.py",
        "if roles is not None:", "if False:",
        _LIFECYCLE + "test_who_asked_cannot_care_for_the_request_either",
    ),
    Mutant(
        "a run inside another acts for the same person", "waiting/scope.py",
        "others = () if around is None else around.acts_for", "others = ()",
        _GUARDS + "test_a_run_inside_another_acts_for_the_same_person",
    ),
    Mutant(
        "a person is barred whoever vouches for the name", "model/reviewer.py",
        "if mine == theirs:\n            return True", "if mine == theirs:\n            return self.is_same(other)",
        _FOR + "test_person_is_barred_under_whatever_name_it_may_be",
    ),
    Mutant(
        "a thread of a pool may be doing the work of an open run", "waiting/scope.py",
        "(self._alone.has_name or not _acting)", "True",
        _FOR + "test_person_of_the_run_is_barred_from_what_its_pool_of_threads_asks",
    ),
    Mutant(
        "a run that has ended bars nobody", "waiting/scope.py",
        "_acting.pop(scope, None)", "pass",
        _FOR + "test_nobody_is_barred_any_more_when_the_runs_have_ended",
    ),
    Mutant(
        "what was asked for less is asked anew", "gates/needs.py",
        "if not request.quorum.covers(self.quorum):", "if False:",
        _NEEDS + "test_request_that_was_asked_for_less_is_closed_and_asked_anew",
    ),
    Mutant(
        "a later run's person is barred from what waits", "gates/needs.py",
        "if person not in request.acts_for]", "if False]",
        _NEEDS + "test_person_of_a_later_run_cannot_decide_what_waits_already",
    ),
    Mutant(
        "what that person approved does not run", "gates/needs.py",
        "if any(by.may_be(person) for person in self.barred)]", "if False]",
        _NEEDS + "test_what_a_person_approved_before_a_run_acted_for_them_does_not_run",
    ),
    Mutant(
        "what is asked anew asks for no less", "gates/needs.py",
        "return Needs(self.quorum.joined(request.quorum), self.barred + also)", "return self",
        _NEEDS + "test_what_is_asked_anew_asks_for_no_less_than_what_it_replaces",
    ),
    Mutant(
        "the start looks at the needs again", "gates/execute.py",
        "lacks = None if needs is None else needs.unmet_by(request)", "lacks = None",
        _NEEDS + "test_call_is_not_executed_by_an_approval_that_lacks_what_it_needs",
    ),
    Mutant(
        "two programs that differ stop asking", "waiting/passage.py",
        "if len(withdrawn) > _MOST_WITHDRAWN:", "if False:",
        _NEEDS + "test_program_whose_request_is_taken_back_again_and_again_stops",
    ),
    Mutant(
        "what was shown is what runs", "gates/execute.py",
        "or not is_as_shown(gate, call):", "or False:",
        _SHOWN + "test_call_that_was_shown_as_another_one_does_not_run",
    ),
    Mutant(
        "and under the name that was shown", "gates/execute.py",
        "(call.tool, call.name) != (gate.tool, gate.name)", "False",
        _SHOWN + "test_call_that_was_shown_under_another_name_does_not_run",
    ),
    Mutant(
        "a redactor's view is made again", "gates/words.py",
        "return dump(shown) in {dump(gate.redaction.mask(again)), dump(gate.redaction.mask(failed))}", "return True",
        _SHOWN + "test_view_that_a_redactor_made_is_compared_with_what_it_makes_now",
    ),
    Mutant(
        "nothing changes while a rule is awaited", "gates/check.py",
        "if asked.has_moved:", "if False:",
        _MOVING + "test_call_that_changed_while_an_async_rule_decided_does_not_run",
    ),
    Mutant(
        "a call fits its own types", "gates/words.py",
        "if problems:", "if False:",
        _PROPOSED + "test_argument_that_does_not_fit_its_own_type_is_refused_before_it_is_held",
    ),
    Mutant(
        "a program that is gone is said to be", "reviews.py",
        "and worker.is_gone(request.process)", "and False",
        _BEHIND + "test_request_without_a_named_run_says_that_its_program_is_gone",
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
        'folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())',
        "folded = text.casefold()",
        _PROMISES + "test_5_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a name hides nothing", "model/reviewer.py",
        "    if hidden:\n", "    if False:\n",
        _GUARDS + "test_a_name_that_hides_something_names_nobody",
    ),
    Mutant(
        "fillers and selectors are hidden, too", "model/reviewer.py",
        " + hidden_in(text)", "",
        _REVIEWER + "test_no_name_holds_what_is_seen_as_nothing",
    ),
    Mutant(
        "no mark stands on what comes before a name", "model/reviewer.py",
        'if unicodedata.category(text[0])[0] == "M":', "if False:",
        _REVIEWER + "test_a_mark_cannot_stand_on_what_comes_before_the_name",
    ),
    Mutant(
        "doubled spaces make no second person", "model/reviewer.py",
        'return " ".join(folded.split())', "return folded",
        _REVIEWER + "test_a_quorum_counts_the_spellings_of_a_name_once",
    ),
    Mutant(
        "a role hides nothing", "model/reviewer.py",
        'frozenset(_checked(role, "role") for role in self.roles)', "frozenset(self.roles)",
        _REVIEWER + "test_no_name_holds_what_is_seen_as_nothing",
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
        'shape_of(request).validate({"answer": value}, written=["answer"])', '{"answer": value}',
        _GUARDS + "test_an_answer_that_does_not_fit_decides_nothing",
    ),
    Mutant(
        "an edit fits the function", "model/edit.py",
        "fitted = shape.validate(values, written=values.keys() - kept)", "fitted = values",
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
        _SCOPE + "test_siblings_of_a_parent_with_a_run_share_nothing",
    ),
    Mutant(
        "a child does not grant its parent", "waiting/scope.py",
        "return owner.task is not None and owner.task() is task", "return owner.task is None or owner.task() is task",
        _SCOPE + "test_what_a_task_was_granted_is_not_granted_to_the_thread_that_began_it",
    ),
    Mutant(
        "a run is part of the fingerprint", "model/fingerprint.py",
        'else _begun("sayso/run/1", run_id)).copy()', 'else _begun("sayso/run/1")).copy()',
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
        "if digest != call.digest or fingerprint(request.run_id, digest, request.place) != approved:", "if False:",
        _PROMISES + "test_1_what_runs_is_what_was_shown_and_approved",
    ),
    Mutant(
        "what runs has the fingerprint that was approved", "gates/execute.py",
        " or fingerprint(request.run_id, digest, request.place) != approved:", ":",
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
        "a container elsewhere is not taken for an earlier boot", "stores/worker.py",
        " and mine[2] == _OUTERMOST", "",
        _WORKER + "test_container_of_the_same_name_on_another_kernel_is_not_taken_for_gone",
    ),
    Mutant(
        "a lock is free in a forked child", "config.py",
        "    global _lock\n    _lock = threading.Lock()", "    pass",
        "unit/test_fork.py::test_a_store_can_be_opened_in_a_child",
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
        _SQLITE + "test_two_stores_that_write_in_one_run_by_turns_leave_one_whole_chain",
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
        "the file is its owner's", "stores/sqlite_file.py",
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
        _SEAL + "test_a_sealed_text_cannot_be_moved_to_another_request",
    ),
    Mutant(
        "nothing sealed is read without the key", "stores/seal.py",
        "            if text.startswith(_ANY):", "            if False:",
        _SQLITE + "test_without_the_key_nothing_sealed_is_read_or_decided",
    ),
    Mutant(
        "a sealed text belongs to its column", "stores/seal.py",
        'return f"{owner}/{column}"', "return owner",
        _SEAL + "test_a_sealed_text_cannot_be_moved_to_another_column",
    ),
    Mutant(
        "what is not sealed is refused where there is a key", "stores/seal.py",
        "        if not text.startswith(_MARK):\n            raise", "        if not text.startswith(_MARK):\n            return text\n            raise",
        _SEAL + "test_what_was_written_in_by_hand_is_refused_where_there_is_a_key",
    ),
    Mutant(
        "people's words are sealed in the journal", "stores/sqlite_transaction.py",
        "if not self._seal.is_open:", "if False:",
        _SEAL + "test_what_people_said_is_sealed_in_the_journal_and_its_chain_holds_without_the_key",
    ),
    # -- the journal ------------------------------------------------------------------------------------------------
    Mutant(
        "a link covers its row", "audit.py",
        "if chained(before, *entry[:-1]).link != entry.link:", "if False:",
        _PROMISES + "test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a request names its last row", "audit.py",
        "if anchor.link != trail.link:", "if False:",
        _AUDIT + "test_an_end_that_was_cut_off_is_found_while_its_request_is_there",
    ),
    Mutant(
        "a request stands as its last row left it", "audit.py",
        "if anchor.state not in trail.states:", "if False:",
        _AUDIT + "test_a_request_that_was_rewritten_by_hand_is_found",
    ),
    Mutant(
        "a request is as it was asked", "audit.py",
        "if anchor.asked is not None and anchor.asked != trail.asked:", "if False:",
        _AUDIT + "test_a_request_that_was_rewritten_by_hand_is_found",
    ),
    Mutant(
        "a request that has rows is there", "audit.py",
        "for request_id, trail in missing.items():", "for request_id, trail in ():",
        _AUDIT + "test_a_request_that_was_removed_or_put_back_is_found",
    ),
    Mutant(
        "a link covers the detail", "model/entry.py",
        "quote(channel), quote(detail)", "quote(channel)",
        _PROMISES + "test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a link covers the row before", "model/entry.py",
        'f"[{quote(before)},', 'f"[',
        _PROMISES + "test_10_every_step_leaves_a_chained_record",
    ),
    # -- what is shown ----------------------------------------------------------------------------------------------
    Mutant(
        "a secret below a name is masked", "model/redaction.py",
        "            elif isinstance(value, _MAY_HIDE):\n                shown = self.mask(value)\n", "",
        _REDACTION + "test_secret_is_absent_at_every_depth",
    ),
    Mutant(
        "a secret in a list is masked", "model/redaction.py",
        "masked = [self.mask(item) if isinstance(item, _MAY_HIDE) else item for item in items]", "masked = items",
        _PROMISES + "test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "the password of a URL is masked", "model/redaction.py",
        "return conceal(tree)", "return tree",
        _REDACTION + "test_password_in_a_url_is_masked_at_every_depth",
    ),
    Mutant(
        "the password of a URL is scrubbed", "model/redaction.py",
        "yield from passwords_in(tree)", "yield from ()",
        _REDACTION + "test_password_in_a_url_is_masked_at_every_depth",
    ),
    Mutant(
        "no command hides in a URL", "model/url_password.py",
        '_LETTER = r"[\\w.~%!*+,=@:^-]|\\$(?![({])"', '_LETTER = r"[^\\s]"',
        _REDACTION + "test_url_without_a_password_is_shown_as_it_is",
    ),
    Mutant(
        "a password comes back to its own URL", "model/url_password.py",
        "if len(gaps) > 1 or len(kept) != 1:", "if not kept:",
        _REDACTION + "test_edit_of_a_url_keeps_its_password_where_it_is_certain_whose_it_is",
    ),
    Mutant(
        "a name is judged without its number", "model/secret_name.py",
        'else _NUMBER.sub("", last)', "else last",
        _REDACTION + "test_name_of_a_secret_is_known_in_every_spelling",
    ),
    Mutant(
        "a page's token is no secret", "model/secret_name.py",
        "return word in _UNLESS and (not before or before[-1] not in _UNLESS[word])", "return word in _UNLESS",
        _REDACTION + "test_ordinary_name_hides_nothing",
    ),
    Mutant(
        "of many secrets the shorter ones are found, too", "model/scrub.py",
        "candidate = shorter[candidate]", "candidate = -1",
        _REDACTION + "test_many_secrets_leave_no_occurrence_either",
    ),
    Mutant(
        "a secret is looked for in any spelling", "model/scrub.py",
        "if kept is None or kept[0] in runs or len(secret.splitlines()) > 1:", "if secret in text:",
        _REDACTION + "test_many_secrets_are_found_in_every_spelling",
    ),
    Mutant(
        "no rule judges a NaN", "gates/check.py",
        "lost = nan_in(asked.kwargs)", "lost = None",
        _NAN + "test_a_rule_lets_no_nan_through",
    ),
    Mutant(
        "a NaN below a scalar is found", "model/nan.py",
        "                waiting.append(part)", "                pass",
        _NAN + "test_a_nan_is_found_at_every_depth",
    ),
    Mutant(
        "settings that others can write are not used", "config.py",
        "if found.st_mode & 0o002 or (found.st_mode & 0o020 and not _is_ours_alone(found.st_gid)):", "if False:",
        _CONFIG + "test_file_that_others_can_write_is_refused",
    ),
    Mutant(
        "a group is somebody else", "config.py",
        "(found.st_mode & 0o020 and not _is_ours_alone(found.st_gid))", "False",
        _CONFIG + "test_file_that_a_group_can_write_is_refused_unless_the_group_is_the_users_own",
    ),
    Mutant(
        "settings of another user are not used", "config.py",
        "            if strangers:", "            if False:",
        _CONFIG + "test_file_of_another_user_is_refused",
    ),
    Mutant(
        "letters that run the other way are warned of", "model/show/escape.py",
        'return first if first is not None and "L" in ways.values() else None', "return None",
        _CARD + "test_letters_that_run_the_other_way_are_warned_of",
    ),
    Mutant(
        "a warning stays inside its width", "model/show/card.py",
        "wrapped(said, width - _CAUTION_INDENT)", "wrapped(said, 10_000)",
        _CARD + "test_no_warning_is_wider_than_asked_for_and_none_is_cut",
    ),
    Mutant(
        "an error that quotes a secret is not in the chain", "gates/words.py",
        "        refusal.__context__ = cause", "        pass",
        "integration/test_policy.py::test_policy_error_does_not_hold_an_error_that_quotes_a_secret",
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
        "words = type(error).__name__ if secrets is None else told.error_text(error, secrets)",
        'words = f"{type(error).__name__}: {error}"',
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
        _SHOW + "test_what_hides_is_written_out",
    ),
    Mutant(
        "a text cannot write an escape itself", "model/show/escape.py",
        'if text.isprintable() and "<U+" not in text:', "if text.isprintable():",
        _SHOW + "test_what_hides_is_written_out",
    ),
    # -- whose call it is -------------------------------------------------------------------------------------------
    Mutant(
        "plain values around a function are part of the call", "gates/gate.py",
        "digest = self._around.now().digest", "digest = None",
        _SAME_NAME + "test_value_in_a_closure_is_part_of_the_call_in_another_process",
    ),
    Mutant(
        "a variable is read when the call is made", "gates/around.py",
        "if last is None or _has_changed(last[1]):", "if last is None:",
        _SAME_NAME + "test_variable_is_read_when_the_call_is_made",
    ),
    Mutant(
        "what a function assigns is its own state", "gates/around.py",
        "if name in _assigned(code):", "if False:",
        _SAME_NAME + "test_state_that_a_function_keeps_for_itself_asks_nobody_again",
    ),
    Mutant(
        "values behind other functions count", "gates/around.py",
        'self.function(f"{place}.", function)', "pass",
        _SAME_NAME + "test_value_behind_another_function_is_part_of_the_call",
    ),
    Mutant(
        "a function that calls itself is not another one", "gates/around.py",
        "if inspect.unwrap(function, stop=self._is_itself) is self._itself:", "if False:",
        _SAME_NAME + "test_function_that_calls_itself_is_the_same_when_it_is_made_anew",
    ),
    Mutant(
        "functions with other objects are kept apart", "gates/apart.py",
        "if other is not None and not is_same(other.surroundings, gate.surroundings):", "if False:",
        _SAME_NAME + "test_function_with_another_object_is_refused_in_one_process",
    ),
    Mutant(
        "a given name stands for one function", "gates/gate.py",
        "[] if self.named is None else [code]", "",
        _SAME_NAME + "test_two_functions_with_one_given_name_are_kept_apart",
    ),
    Mutant(
        "who asked is forgotten with the call", "gates/execute.py",
        "        forget(request.id)", "        pass",
        _SAME_NAME + "test_nothing_is_remembered_of_what_has_ended",
    ),
    Mutant(
        "who asked is forgotten with the request's end", "gates/apart.py",
        "if asked.gate() is None or asked.until <= now:", "if asked.gate() is None:",
        _SAME_NAME + "test_nothing_is_remembered_of_what_has_ended",
    ),
    Mutant(
        "what has no name is given one", "gates/declared.py",
        "if kind is not None:", "if False:",
        _SAME_NAME + "test_what_has_no_name_of_its_own_needs_a_given_one",
    ),
    Mutant(
        "a misspelt secret is refused", "gates/declared.py",
        'if "" not in names and not any(marks(key, name.removeprefix(".")) for name in names):', "if False:",
        "integration/test_options.py::test_misspelt_name_of_a_secret_is_refused",
    ),
    Mutant(
        "a hook asks for what there is", "gates/declared.py",
        "if parameter.name not in names:", "if False:",
        "integration/test_options.py::test_hook_that_asks_for_an_argument_there_is_not_is_refused",
    ),
    # -- runs -------------------------------------------------------------------------------------------------------
    Mutant(
        "who does not hold a run saves nothing of it", "stores/run_verbs.py",
        "    if known is not None and known.holder != saved.run.holder:\n        raise", "    if False:\n        raise",
        _CONTRACT + "TestMemory::test_who_does_not_hold_a_run_writes_nothing_of_it",
    ),
    Mutant(
        "who does not hold a run does not end it", "stores/run_verbs.py",
        "if known is not None and known.holder != saved.run.holder:\n                return", "if False:\n                return",
        _CONTRACT + "TestMemory::test_who_does_not_hold_a_run_writes_nothing_of_it",
    ),
    Mutant(
        "a run is in one hand", "stores/run_verbs.py",
        "if run.holder != holder and not lease.is_free(run.holder):", "if False:",
        _CONTRACT + "TestSqlite::test_of_eight_who_take_a_run_at_once_one_has_it",
    ),
    Mutant(
        "a run that ended is not taken", "stores/run_verbs.py",
        "if run.state is RunState.ENDED:", "if False:",
        _CONTRACT + "TestMemory::test_an_ended_run_is_shown_and_not_taken",
    ),
    Mutant(
        "a lease of this process holds while it lives", "stores/lease.py",
        "return token not in _live if process == worker.current() else worker.is_gone(process)",
        "return process == worker.current() or worker.is_gone(process)",
        "unit/test_lease.py::test_a_lease_holds_as_long_as_its_object_lives",
    ),
    Mutant(
        "a request is recorded with its run or not at all", "stores/base.py",
        "if saved is not None:\n                save(tx, saved)\n            held", "held",
        _CONTRACT + "TestMemory::test_a_request_and_its_run_are_recorded_together_or_not_at_all",
    ),
    Mutant(
        "how a call ended is recorded whoever has its run", "stores/base.py",
        "except errors.RunBusyError as refusal:\n                return refusal", "except errors.RunBusyError:\n                raise",
        _CONTRACT + "TestSqlite::test_how_a_call_ended_is_recorded_even_where_its_run_is_in_other_hands",
    ),
    Mutant(
        "a run does not go on while what it waits for is under way", "stores/run_verbs.py",
        "NOT_DECIDED = frozenset({State.PENDING, State.RUNNING, State.UNKNOWN})", "NOT_DECIDED = frozenset({State.PENDING})",
        _CONTRACT + "TestSqlite::test_a_paused_run_can_go_on_when_what_it_waits_for_is_decided",
    ),
    Mutant(
        "a run waits no more for what it waited for before", "stores/sqlite_runs.py",
        "self._execute(_WAIT_NO_MORE, (run_id, step.place))", "pass",
        _CONTRACT + "TestSqlite::test_what_a_run_waited_for_before_does_not_make_it_ready",
    ),
    Mutant(
        "a sealed step is bound to its place", "stores/sqlite_runs.py",
        'return f"step/{n}/{place}"', 'return "step"',
        "integration/test_kept_runs.py::test_a_sealed_step_can_be_moved_nowhere",
    ),
    Mutant(
        "a call that stopped itself has no more tries", "model/lifecycle.py",
        "before = None if execution.attempt == 1 else _evolve(execution, attempt=execution.attempt - 1)", "before = None",
        _CONTRACT + "TestMemory::test_a_call_that_stopped_to_ask_has_no_more_tries_than_before",
    ),
    Mutant(
        "a store that cannot protect a start is refused", "compat.py",
        'if not isinstance(given, Store) or not callable(getattr(given, "start", None)):', "if not isinstance(given, Store):",
        "unit/test_compat.py::test_what_cannot_protect_a_start_is_refused",
    ),
    Mutant(
        "a claim is for a request of this run", "compat.py",
        "if where.get(approval_id).run_id != parent_id:", "if False:",
        "unit/test_compat.py::TestClaim::test_what_is_not_approved_in_this_run_is_not_claimed",
    ),
    # -- what happened in a run, and what is decided in it -----------------------------------------------------------
    Mutant(
        "a step that ended is not done again", "runs/step.py",
        "            return _once_more(frame, known)", "            pass",
        _KINDS + "test_free_calls_of_a_turn_run_at_once_and_only_once",
    ),
    Mutant(
        "a request of another run is not taken", "runs/proof.py",
        "request.run_id != frame.journal.run_id or request.place != place:", "request.place != place:",
        _LIES + "test_a_run_does_not_take_up_the_request_of_another",
    ),
    Mutant(
        "a request of another place is not taken", "runs/proof.py",
        " or request.place != place:", ":",
        _LIES + "test_two_places_of_a_run_cannot_swap_their_requests",
    ),
    Mutant(
        "an answer of another run is none", "runs/interaction.py",
        "        must_be_of(request, frame, place)", "        pass",
        _LIES + "test_a_question_of_another_run_gives_no_answer",
    ),
    Mutant(
        "what a run says of a gated call its request bears out", "runs/step.py",
        "known = await adrive(borne_out(frame, known))", "pass",
        _LIES + "test_a_run_that_claims_to_have_ended_is_not_believed",
    ),
    Mutant(
        "a gated call without a request was not made", "runs/proof.py",
        "if runnable.gate.when is True:", "if False:",
        _LIES + "test_a_claimed_call_without_any_request_is_refused",
    ),
    Mutant(
        "a call inside of a handler is borne out, too", "runs/inner.py",
        "if self._gate.when is True and journal.is_hearsay(place)", "if False and journal.is_hearsay(place)",
        _LIES + "test_a_forged_call_inside_of_a_handler_is_not_believed",
    ),
    Mutant(
        "a call inside of a handler is not made again", "runs/inner.py",
        "self.known = self._recalled(digest)", "self.known = None",
        _ASKED + "test_equal_gated_calls_inside_of_a_handler_wait_one_by_one",
    ),
    Mutant(
        "two equal calls inside of a handler are two", "runs/inner.py",
        "{digest}.{self._seen[digest]}", "{digest}.1",
        _ASKED + "test_equal_gated_calls_inside_of_a_handler_wait_one_by_one",
    ),
    Mutant(
        "a call that was made after its run was left is known", "runs/inner.py",
        "if len(made) > noted else None", "if False else None",
        _LIES + "test_a_run_that_is_cancelled_at_any_step_goes_on_and_does_nothing_twice",
    ),
    Mutant(
        "a handler whose run was handed back calls nothing", "runs/inner.py",
        "if self._frame.journal.is_left:", "if False:",
        _LIES + "test_a_task_that_a_handler_left_behind_makes_no_call_for_the_run",
    ),
    Mutant(
        "a run that nobody listens to begins nothing", "runs/frame.py",
        "if self.journal.is_stopping:", "if False:",
        "integration/test_worker.py::test_a_handler_that_ends_within_the_grace_is_recorded_and_nothing_new_begins",
    ),
    Mutant(
        "who could not hand a run back does not keep it", "runs/journal.py",
        "            self._lease.release()", "            pass",
        _ALONE + "test_a_run_that_could_not_be_handed_back_is_in_nobodys_hand",
    ),
    Mutant(
        "a run whose program lives elsewhere is not free", "stores/lease.py",
        "else worker.is_gone(process)", "else True",
        "unit/test_lease.py::test_a_lease_of_another_process_is_free_when_that_has_surely_ended",
    ),
    Mutant(
        "a decision of another run is ignored", "runs/decide.py",
        "if request.run_id == journal.run_id and journal.is_kept:", "if journal.is_kept:",
        _SAID + "test_a_decision_of_one_run_never_counts_in_another",
    ),
    Mutant(
        "a decision under the name of no run is ignored", "runs/decide.py",
        "request.run_id == journal.run_id and journal.is_kept:", "request.run_id == journal.run_id:",
        _ALONE + "test_a_decision_for_a_run_that_nobody_began_decides_nothing",
    ),
    Mutant(
        "what is merely true is no approval", "runs/resolution.py",
        "if isinstance(self.given, bool):\n            return ApprovalResolution(approved=self.given)",
        "if not isinstance(self.given, dict):\n            return ApprovalResolution(approved=bool(self.given))",
        _SAID + "test_what_is_no_decision_decides_nothing",
    ),
    Mutant(
        "nor in a resolution", "runs/resolution.py",
        "approved: StrictBool", "approved: bool",
        _LIES + "test_a_resolution_is_true_or_false",
    ),
    Mutant(
        "a misspelt change is no approval without it", "runs/resolution.py",
        'extra="forbid"', 'extra="ignore"',
        _LIES + "test_a_decision_with_a_misspelt_field_decides_nothing",
    ),
    Mutant(
        "a yes and a no to one call decide nothing", "runs/resolution.py",
        "if request_id in found and found[request_id].given != value:", "if False:",
        "integration/test_runs_new_user.py::test_a_yes_and_a_no_to_one_request_in_one_call_decide_nothing",
    ),
    Mutant(
        "a rule's answer is true or false, too", "runs/resolution.py",
        "required: StrictBool", "required: bool",
        _LIES + "test_a_resolution_is_true_or_false",
    ),
    Mutant(
        "a decision whose time is over does not count", "runs/decide.py",
        "if said.is_expired():", "if False:",
        _ALONE + "test_a_yes_or_no_whose_time_is_over_leaves_the_same_request_waiting",
    ),
    Mutant(
        "nor one whose time is over before the start", "runs/step.py",
        "return until is not None and now_ms() >= until", "return False",
        _ENDS + "test_a_decision_that_ends_before_the_call_starts_does_not_count",
    ),
    Mutant(
        "of several words the first that ends ends the approval", "runs/decide.py",
        "min(ends, default=None)", "max(ends, default=None)",
        _ALONE + "test_of_several_approvals_with_an_end_the_earliest_end_counts",
    ),
    Mutant(
        "who was not first is told so", "runs/decide.py",
        "if is_whole and mine and all(", "if False and all(",
        "acceptance/test_seed_002.py::test_a_second_worker_is_told_so",
    ),
    Mutant(
        "after a crash a decision goes on with the run", "runs/decide.py",
        "is_whole = journal.was is not RunState.BROKEN", "is_whole = True",
        _SAID + "test_a_decision_brought_again_after_a_crash_goes_on_with_the_run",
    ),
    Mutant(
        "a cancelled request ends the whole run", "runs/decide.py",
        "if request.state is State.CANCELLED and request.holds:", "if False:",
        _ENDS + "test_cancelling_ends_the_whole_run_and_runs_nothing_more",
    ),
    Mutant(
        "changed code does not go on with a run", "runs/leg.py",
        "    if problems:\n", "    if False:\n",
        "integration/test_worker.py::test_a_run_whose_code_has_changed_is_reported_once_and_not_begun",
    ),
    Mutant(
        "the wrong code leaves a run as it was", "runs/leg.py",
        "return frame.journal.was", "return RunState.ENDED",
        _SAID + "test_a_run_that_the_wrong_code_looked_at_waits_as_before",
    ),
    Mutant(
        "who goes on with a run acts for its person", "runs/leg.py",
        "for person in _acts_for(journal):", "for person in ():",
        "integration/test_worker.py::test_whom_a_run_acts_for_is_barred_from_what_it_asks_later",
    ),
    Mutant(
        "no model is told to get around a rule that failed", "runs/step.py",
        'reason="approval_policy_error", message=str(error))\n        raise Halt(status, error) from error',
        'reason="approval_policy_error", message=str(error))\n        raise Failed("", str(error), error) from error',
        _RULES + "test_a_policy_error_of_one_tool_ends_the_agents_run",
    ),
    Mutant(
        "no model is told of a call whose end is unknown", "runs/step.py",
        'raise Halt(RunStatus(code="error", reason="outcome_unknown", message=str(error)), error) from error',
        'raise Failed("OutcomeUnknownError", str(error), error) from error',
        _BROKEN_OFF + "test_a_gated_handler_that_is_cancelled_inside_is_unknown",
    ),
    Mutant(
        "a run goes on when an unknown outcome is settled", "runs/leg.py",
        ' | "outcome_unknown":', ":",
        "integration/test_worker.py::test_an_unknown_outcome_is_told_and_never_tried_again",
    ),
    Mutant(
        "a handler that stopped to ask has not ended", "gates/execute.py",
        'return Outcome("suspended")', 'return Outcome("done")',
        _ASKED + "test_a_handler_asks_and_goes_on_with_the_answer",
    ),
    Mutant(
        "an answer fits what was asked for", "runs/interaction.py",
        "Shape.of_type(str if asks.schema is None else annotation_of(asks.schema))", "Shape.of_type(object)",
        _ASKED + "test_a_handler_asks_and_goes_on_with_the_answer",
    ),
    Mutant(
        "only a handler asks", "runs/interaction.py",
        "if not frame.is_running:", "if False:",
        _LIES + "test_only_handlers_ask_persons",
    ),
    Mutant(
        "what was lost is not handed on as text", "runs/step.py",
        "return lost if frame.parent is not None and frame.parent.runnable.needs_values else lost.plain",
        "return lost.plain",
        "integration/test_runs_values.py::test_value_that_could_not_be_kept_is_told_to_be_lost_and_not_handed_on_as_text",
    ),
    Mutant(
        "who was cancelled while taking a run does not keep it", "runs/leg.py",
        "        lease.release()\n        raise", "        raise",
        _LIES + "test_a_run_that_was_taken_while_its_taker_was_cancelled_is_in_nobodys_hand",
    ),
    # -- lines of JSON ----------------------------------------------------------------------------------------------
    Mutant(
        "who writes is alone", "stores/jsonl_file.py",
        "fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass",
        _JSONL + "test_who_reads_does_not_wait_for_who_writes_and_a_writer_is_told",
    ),
    Mutant(
        "a lock that was removed is none", "stores/jsonl_file.py",
        "if _is_there(self._lock_fd, self._lock_path):", "if True:",
        _JSONL + "test_a_lock_that_was_removed_keeps_nobody_apart_and_is_made_anew",
    ),
    Mutant(
        "a forked child lets its parent's lock go", "stores/jsonl.py",
        "        self._file.close_all()\n        self._begin_process()", "        self._begin_process()",
        _JSONL + "test_a_forked_child_does_not_take_its_parents_lock_along",
    ),
    Mutant(
        "a line is on the disk before the verb returns", "stores/jsonl_file.py",
        "            _sync(fd)\n", "",
        _JSONL + "test_what_could_not_be_written_was_not",
    ),
    Mutant(
        "what could not be written is taken back", "stores/jsonl_file.py",
        "            with suppress(OSError):\n                os.ftruncate(fd, self._offset)\n            raise", "            raise",
        _JSONL + "test_what_could_not_be_written_was_not",
    ),
    Mutant(
        "what a crash left is cut off", "stores/jsonl_file.py",
        "os.ftruncate(fd, self._offset)\n                self._remnant = 0", "self._remnant = 0",
        _JSONL + "test_a_last_line_whose_beginning_was_lost_is_torn_as_well",
    ),
    Mutant(
        "a line that was altered is refused", "stores/jsonl_line.py",
        "if tail != _tail(link):", "if False:",
        _JSONL + "test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number",
    ),
    Mutant(
        "a link covers the line before", "stores/jsonl_line.py",
        'hashlib.sha256(before.encode("ascii") + body)', "hashlib.sha256(body)",
        _JSONL + "test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number",
    ),
    Mutant(
        "another program's file is left alone", "stores/jsonl_line.py",
        'if self.number == 0 and not _FIRST.startswith(text.rstrip(b"\\0")):', "if False:",
        _JSONL + "test_a_file_that_is_not_ours_is_refused_and_left_as_it_was",
    ),
    Mutant(
        "a newer format is refused", "stores/jsonl_line.py",
        "if version != _VERSION:", "if False:",
        _JSONL + "test_a_newer_line_is_refused_and_left_as_it_was",
    ),
    Mutant(
        "a file that was replaced is read anew", "stores/jsonl_file.py",
        "return self._fd is not None and not _is_there(self._fd, self._path, self._offset)", "return False",
        _JSONL + "test_a_file_that_was_replaced_or_removed_is_read_anew",
    ),
    Mutant(
        "a sealed step is bound to its place in lines, too", "stores/jsonl_transaction.py",
        'return f"step/{n}/{place}"', 'return "step"',
        _JSONL + "test_a_sealed_step_can_be_moved_nowhere_even_where_the_links_are_made_anew",
    ),
    # -- ReAct: what a saved pause may and may not do -----------------------------------------------------------------
    Mutant(
        "a pause that names another run uses nothing of it", "runs/react.py",
        "if request.run_id != course.run_id and self._is_own(waiting, request):", "if False:",
        _STATES + "test_state_with_another_run_uses_no_approval_of_that_run",
    ),
    Mutant(
        "a response counts for what was shown alone", "runs/react.py",
        "            check_shown(signal, request)\n", "",
        _STATES + "test_response_to_something_else_than_what_waits_decides_nothing",
    ),
    Mutant(
        "a run that goes on elsewhere acts for the same persons", "runs/react.py",
        "course.acts_for = request.acts_for", "course.acts_for = ()",
        _STATES + "test_person_for_whom_it_acts_is_barred_in_every_process",
    ),
    Mutant(
        "an answer beside a call that waits is not taken", "runs/react.py",
        "        if course.waiting:\n            why", "        if False:\n            why",
        _REACT + "test_finish_beside_a_call_that_waits_is_not_taken",
    ),
    Mutant(
        "an equal call of the same turn is asked for itself", "runs/react.py",
        "if not waiting.is_asked:", "if False:",
        _REACT + "test_two_identical_calls_in_one_turn_wait_twice",
    ),
    Mutant(
        "no model is told how to get around a fault of the gate", "runs/react.py",
        "        except errors.SaysoError:\n            raise  # not run", "        except ZeroDivisionError:\n            raise  # not run",
        _REACT + "test_rule_that_fails_ends_the_run_and_no_model_is_told_how_to_get_around_it",
    ),
    Mutant(
        "an approval of a nested call is not spent on the tool", "runs/react.py",
        "if not self._is_own(waiting, request):", "if False:",
        _STATES + "test_function_inside_of_a_tool_is_asked_for_and_then_found_again",
    ),
    Mutant(
        "labels that tell calls apart are made where the provider's do not", "runs/course.py",
        'if "" in ids or len(ids) < len(', 'if False and len(ids) < len(',
        _REACT + "test_calls_without_labels_of_their_own_are_told_apart",
    ),
    Mutant(
        "a context in which nothing waits is refused", "runs/course.py",
        "is_whole = bool(waiting) and course.turns > 0", "is_whole = True",
        _STATES + "test_what_react_did_not_save_is_refused",
    ),
    Mutant(
        "inputs are masked in a context", "runs/course.py",
        "inputs, messages = self._clean(_masked(self.inputs)), self._messages()", "inputs, messages = self.inputs, self._messages()",
        _STATES + "test_no_secret_stands_in_what_is_saved_and_the_call_gets_the_real_ones",
    ),
]  # fmt: skip
