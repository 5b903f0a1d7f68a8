"""An agent at the console that takes a pizza order, and asks what it does not know.

    python examples/pizza_console.py
    python examples/pizza_console.py openai/gpt-5      with a real model, if its key is set (pip install "sayso[agent]")

Without a model's name it plays a script and needs no network. Each of its questions is also in `sayso ls` while it
waits, and whoever answers first counts.
"""

import asyncio
import sys
from typing import Any, Literal

from pydantic import BaseModel

import sayso
from sayso.channels import console_requester, human_in_the_loop
from sayso.runs.react import NoAnswerError

SIZES, TOPPINGS = ["small", "medium", "large"], ["cheese", "ham", "meatballs", "mushrooms"]


class Wish(BaseModel):
    """Take an order for pizzas. Ask the customer about what is missing or cannot be."""

    customer_request: str


class Pizza(BaseModel):
    """One pizza."""

    size: Literal["small", "medium", "large"]
    toppings: list[str]
    special_instructions: str | None = None


class Order(BaseModel):
    """What the kitchen gets."""

    pizzas: list[Pizza]


async def scripted(messages: list[dict[str, Any]], _tools: list[dict[str, Any]]) -> Any:
    """Stand in for a model: ask for a topping and a size until both are known."""
    heard = [message["content"] for message in messages if message["role"] == "tool"]
    words = " ".join([messages[1]["content"], *heard]).casefold()
    toppings = [topping for topping in TOPPINGS if topping in words]
    sizes = [size for size in SIZES if size in words]
    if not toppings:
        return [("ask_human", {"question": f"Which topping would you like? We have {', '.join(TOPPINGS)}."})]
    if not sizes:
        return [("ask_human", {"question": f"Which size: {', '.join(SIZES)}?"})]
    pizza = {"size": sizes[0], "toppings": toppings, "special_instructions": heard[-1] if heard else None}
    return [("finish", {"pizzas": [pizza]})]


async def main(model: object) -> None:
    """Take orders until there are no more."""
    human = human_in_the_loop(console_requester)
    agent = sayso.ReAct((Wish, Order), [human], model=model, max_iters=6, enable_ask_to_user=False)
    while True:
        try:
            wish = await human.acall(question="What is your order? (Type 'quit' to exit)")
            if wish.strip().casefold() == "quit":
                return
            order = await agent.aforward(customer_request=wish)
        except sayso.ConfirmationRejected as no:
            print(f"No order: {no.message}")
        except NoAnswerError:
            print("No order: I could not find out what you would like.")
        except EOFError:
            return
        else:
            print(f"Order: {[pizza.model_dump() for pizza in order.pizzas]}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else scripted))
