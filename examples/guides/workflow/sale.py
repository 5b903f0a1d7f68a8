"""An argument of a step that comes from another step and from the input of the workflow."""

import sayso


def price(item: str) -> int:
    return {"van": 300, "bike": 40}[item]


def invoice(item: str, amount: int) -> str:
    return f"{item}: {amount}"


workflow = (
    sayso.Workflow(name="sale")
    .step(price)
    .step(invoice, amount=lambda price, discount: price - discount)  # from a result and the input
    .step(lambda: "sent", name="mail", depends_on=["invoice"])
)
print(workflow(item="van", discount=50).run().output["invoice"])
