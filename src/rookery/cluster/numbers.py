"""The object ids that a member of the cluster can assign to the objects it stores."""

from __future__ import annotations

from itertools import count
from typing import Final

from rookery.errors import Unavailable
from rookery.formats.keys import NUMBER_LIMIT, STORED, object_id

# When this many numbers are left, a member should register again to get new ones.
_RESERVE: Final = 100_000


class Numbers:
    """The object ids of one incarnation in the store; each is returned once."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self._next = count(STORED)
        self.last = STORED - 1

    def __call__(self) -> int:
        """Return the next object id."""
        self.last = next(self._next)
        if self.last >= NUMBER_LIMIT:
            raise Unavailable(f"incarnation {self.incarnation} has used up its object names")
        return object_id(self.incarnation, self.last)

    @property
    def is_nearly_spent(self) -> bool:
        """Whether a new incarnation is needed soon."""
        return self.last >= NUMBER_LIMIT - _RESERVE
