"""What all tests have: seeds that are the same in each run."""

import pytest

from ablate import _campaign


@pytest.fixture(autouse=True)
def seeds(monkeypatch):
    """Judgements whose words have no seed draw by 1, and not by the system's."""
    monkeypatch.setattr(_campaign, "_system_seed", lambda: 1)
