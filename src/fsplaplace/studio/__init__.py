"""The studio: one HTML page to choose a prior by looking at it."""

from fsplaplace.studio._command import write_studio as write_studio
from fsplaplace.studio._page import linked as linked
from fsplaplace.studio._page import studio_page as studio_page
