"""Executes the plan of `submit.py` once it is approved."""

from sayso.mplp import read_confirm, read_plan, start

plan = read_plan("550e8400-e29b-41d4-a716-446655440501")
confirm = read_confirm(plan.plan_id)
if confirm.status != "approved":
    raise SystemExit(f"plan {plan.status}, Confirm {confirm.status}")
said = confirm.decisions[-1]
print(f"plan {plan.status}, Confirm {confirm.status} by {said.decided_by_role}: {said.reason}")
start(plan, lambda plan: print(*(step.description for step in plan.steps), sep=", "))
print(f"plan {plan.status}")
