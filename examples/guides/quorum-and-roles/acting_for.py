"""A program that acts for ada, who cannot approve what it asks."""

import sayso
from sayso.errors import OwnRequestError


@sayso.gate(wait="raise")
def raise_limit(user: str, limit: int) -> str:
    return f"{user} may spend {limit}"


with sayso.run("limit-ada", on_behalf_of="ada"):
    try:
        raise_limit("ada", 5_000)
    except sayso.ConfirmationRequired as held:
        try:
            sayso.Review().approve(held.confirmation_id, by="Ada")
        except OwnRequestError as error:
            print(error.by)
        sayso.Review().approve(held.confirmation_id, by="bob")
    print(raise_limit("ada", 5_000))
