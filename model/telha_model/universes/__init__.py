"""The named universes, one concern each. `ci` sizes run on every change and on the real queue; `large` ones in the long
run.

Bounds are natural wherever they can be: jobs leave by discard and purge, attempts end at the budget, times are
relative. What remains is the number of jobs that exist at a time. A change of meaning changes a universe's pinned count
of states and edges.
"""

from telha_model.universe import Size, Universe
from telha_model.universes.jobs import bulk, keys, sweep
from telha_model.universes.lease import death, protocol
from telha_model.universes.scopes import agenda, fairness, order, reopen


def universes(size: Size = "ci") -> dict[str, Universe]:
    """All universes of a size, by name."""
    builders = (protocol, death, keys, fairness, order, sweep, reopen, bulk, agenda)
    made = [build(size) for build in builders]
    return {universe.name: universe for universe in made}
