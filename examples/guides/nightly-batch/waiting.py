"""Waits for the decisions on all transfers at once, as docs/guides/nightly-batch.md says."""

import asyncio
from pathlib import Path

import sayso

INVOICES = {"2001": 80, "2002": 9500}


@sayso.gate(key="{invoice}", expires="7d", approval_expires="3d")
async def transfer(invoice: str, amount: int) -> str:
    with Path("bank.txt").open("a") as bank:
        bank.write(f"{invoice} {amount}\n")
    return f"paid {amount}"


async def settle(invoice: str, amount: int) -> str:
    try:
        return f"{invoice} {await transfer(invoice, amount)}"
    except sayso.ConfirmationRejected as no:
        return f"{invoice} is refused: {no.message}"
    except sayso.SaysoError as error:
        return f"{invoice} needs a look: {error}"


async def main() -> None:
    with sayso.run("invoices-2026-01-31"):
        for settled in asyncio.as_completed([settle(*invoice) for invoice in INVOICES.items()]):
            print(await settled, flush=True)


asyncio.run(main())
