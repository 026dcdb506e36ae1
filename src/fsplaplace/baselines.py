"""The former name of `fsplaplace.methods`."""

from fsplaplace.methods import *  # noqa: F403
