"""Which calls are allowed, held or denied: verdicts of rules, and the policy file.

`verdict` has the answers that a rule can give, `rules` parses the file, and `condition` runs its CEL. `policy` has
`Policy`, which finds the verdict on a call, and `replay`, which asks a policy about past requests.
"""

from sayso.policy.policy import Answer, EvaluatedRule, Policy, in_effect
from sayso.policy.rules import Problem, Rule
from sayso.policy.verdict import Budget, Happened, Verdict, allow, deny, describe, hold, verdict_of

__all__ = [
    "Answer", "Budget", "EvaluatedRule", "Happened", "Policy", "Problem", "Rule", "Verdict", "allow", "deny",
    "describe", "hold", "in_effect", "verdict_of",
]  # fmt: skip
