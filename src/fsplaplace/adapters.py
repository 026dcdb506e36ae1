"""The former name of `fsplaplace.networks.adapters`."""

from fsplaplace.networks.adapters import copy_to_torch as copy_to_torch
