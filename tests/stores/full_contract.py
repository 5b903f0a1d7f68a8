"""The contract of the stores of this package: `sayso.testing.StoreContract`, and the rules that the verbs apply.

A store of somebody else has these rules from the base class, and the shipped contract leaves them out.
"""

from __future__ import annotations

from tests.stores.contract_grants import AlteredRecordContract
from tests.stores.contract_outbox import OutboxContract
from tests.stores.contract_rules import RuleContract

__all__ = ["FullContract"]


class FullContract(AlteredRecordContract, OutboxContract, RuleContract):
    """Every store of this package passes this; one that is reached over a network leaves parts out."""
