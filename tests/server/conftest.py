"""An inbox over the store of a test, and Ada signed in at it."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette

from sayso.server import create_app
from sayso.stores.base import Store
from tests.support.browsing import Browser, browser


@pytest.fixture
def app(store: Store) -> Starlette:
    return create_app(store)


@pytest.fixture
def ada(app: Starlette) -> Browser:
    return browser(app, "ada")
