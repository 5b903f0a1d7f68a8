"""A plan of two steps that waits for a person."""

from sayso.mplp import Plan, PlanStep, submit_plan_for_approval

plan = Plan(
    plan_id="550e8400-e29b-41d4-a716-446655440501",
    title="Database migration",
    objective="Migrate data with zero downtime",
    steps=[
        PlanStep(step_id="550e8400-e29b-41d4-a716-446655440511", description="Export the user table"),
        PlanStep(step_id="550e8400-e29b-41d4-a716-446655440512", description="Import it"),
    ],
)
confirm = submit_plan_for_approval(plan, "planner", risk="high")
print(f"plan {plan.status}, Confirm {confirm.status}, {len(confirm.decisions)} decisions")
