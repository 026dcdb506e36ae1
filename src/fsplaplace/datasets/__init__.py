"""The data sets of the experiments: CO2, ocean currents, three image sets, eleven regression tables.

Files come from a local mirror named by the environment variable `FSPLAPLACE_DATA`, or are downloaded once
into the user's cache; either way their SHA-256 is checked before they are read.
"""

from fsplaplace.datasets._catalogue import entry as entry
from fsplaplace.datasets._catalogue import names as names
from fsplaplace.datasets._dataset import Dataset as Dataset
from fsplaplace.datasets._dataset import load as load
from fsplaplace.datasets._store import DatasetUnavailableError as DatasetUnavailableError
from fsplaplace.datasets._store import fetch as fetch
from fsplaplace.datasets._store import path as path
from fsplaplace.datasets._store import verify as verify
