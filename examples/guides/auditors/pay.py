"""Makes one approved payment, of which docs/explanation/auditors.md takes evidence."""

import sayso


@sayso.gate(wait="raise")
def pay(amount: int, to: str, api_key: str = "") -> str:
    return f"paid {amount} to {to}"


with sayso.run("order-4721"):
    try:
        pay(80, "alice", api_key="s3cr3t-s3cr3t")
    except sayso.ConfirmationRequired as held:
        sayso.Review().approve(held.confirmation_id, comment="goodwill")
    print(pay(80, "alice", api_key="s3cr3t-s3cr3t"))
