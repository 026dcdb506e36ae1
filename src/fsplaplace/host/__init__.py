"""What touches the host: float64, random keys, memory, threads, files, progress, tables, compiled programs."""

from fsplaplace.host._files import FileFormatError as FileFormatError
from fsplaplace.host._files import check_target as check_target
from fsplaplace.host._files import checksum as checksum
from fsplaplace.host._files import read_tensors as read_tensors
from fsplaplace.host._files import signature as signature
from fsplaplace.host._files import write_atomically as write_atomically
from fsplaplace.host._files import write_tensors as write_tensors
from fsplaplace.host._float64 import cast as cast
from fsplaplace.host._float64 import double_precision as double_precision
from fsplaplace.host._float64 import in_float64 as in_float64
from fsplaplace.host._float64 import to_device as to_device
from fsplaplace.host._float64 import to_double as to_double
from fsplaplace.host._memory import check_fits as check_fits
from fsplaplace.host._memory import format_bytes as format_bytes
from fsplaplace.host._memory import itemsize as itemsize
from fsplaplace.host._memory import pad_rows as pad_rows
from fsplaplace.host._memory import resolve_budget as resolve_budget
from fsplaplace.host._memory import rows_of_data as rows_of_data
from fsplaplace.host._memory import rows_that_fit as rows_that_fit
from fsplaplace.host._process import ready_to_compute as ready_to_compute
from fsplaplace.host._programs import cache_programs as cache_programs
from fsplaplace.host._progress import progress_bar as progress_bar
from fsplaplace.host._random import host_generator as host_generator
from fsplaplace.host._tables import table_text as table_text
from fsplaplace.host._threads import blas_threads_for as blas_threads_for
from fsplaplace.host._threads import one_blas_thread as one_blas_thread
