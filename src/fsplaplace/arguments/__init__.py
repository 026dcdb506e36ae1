"""What public functions accept: the annotation of an argument is its rule, and its name says its range.

`checked` compares a call with the function's own annotations before anything is computed, so a new function needs one line
and has no check to copy. Every error names the function, the argument, what was seen and what to pass instead.
"""

from fsplaplace.arguments._arrays import check_finite as check_finite
from fsplaplace.arguments._arrays import check_numbers as check_numbers
from fsplaplace.arguments._arrays import check_readable as check_readable
from fsplaplace.arguments._arrays import check_squares as check_squares
from fsplaplace.arguments._arrays import warn_if_grey_levels as warn_if_grey_levels
from fsplaplace.arguments._checked import accepts as accepts
from fsplaplace.arguments._checked import check_fields as check_fields
from fsplaplace.arguments._checked import check_parameters as check_parameters
from fsplaplace.arguments._checked import checked as checked
from fsplaplace.arguments._forks import refuse_fork as refuse_fork
from fsplaplace.arguments._keys import KeyLike as KeyLike
from fsplaplace.arguments._keys import as_key as as_key
from fsplaplace.arguments._ranges import RANGES as RANGES
from fsplaplace.arguments._ranges import Range as Range
from fsplaplace.arguments._words import described as described
from fsplaplace.arguments._words import seen as seen
