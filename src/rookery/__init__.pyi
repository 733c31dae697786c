"""The public names, for type checkers; `__init__.py` imports them when they are first used."""

from rookery.consumer.api import follow as follow
from rookery.consumer.api import read as read
from rookery.consumer.api import replay as replay
from rookery.consumer.checkpoint import Checkpoint as Checkpoint
from rookery.consumer.positions import Offsets as Offsets
from rookery.consumer.settings import Spill as Spill
from rookery.consumer.stream import OrderedStream as OrderedStream
