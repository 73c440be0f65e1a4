"""How threads wait for each other; to be said before numpy, scikit-learn and torch are imported."""

from __future__ import annotations

from collections.abc import MutableMapping

#: Threads that wait for others sleep. They would keep cores busy, and boosted trees of a small table would
#: take minutes where the machine does other work too.
_QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def wait_quietly(environment: MutableMapping[str, str]) -> None:
    """Ask that threads sleep while they wait, unless the environment says how they should.

    Examples
    --------
    >>> environment = {"OMP_WAIT_POLICY": "ACTIVE"}
    >>> wait_quietly(environment)
    >>> environment
    {'OMP_WAIT_POLICY': 'ACTIVE'}
    """
    if not environment.keys() & _QUIET.keys():
        environment.update(_QUIET)
