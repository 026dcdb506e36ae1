"""The studio: one HTML page to choose a prior by looking at it.

`page/` holds the page as separate files: plain ES modules of one idea each, a style sheet and the HTML around them. They are put
into one file when the page is written; there is no build step, and the modules also run in Node.js as they are. What they compute
(kernels, evidence, posterior, sentences) is compared with Python by the tests.
"""

from fsplaplace.studio._command import write_studio as write_studio
from fsplaplace.studio._page import linked as linked
from fsplaplace.studio._page import studio_page as studio_page
