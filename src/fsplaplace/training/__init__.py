"""Algorithm 1: training under the prior, its checks, checkpoints and the loop that every trained method shares."""

from fsplaplace.training._loop import Minimum as Minimum
from fsplaplace.training._loop import Objective as Objective
from fsplaplace.training._loop import OneTerm as OneTerm
from fsplaplace.training._loop import minimise as minimise
from fsplaplace.training._observed import bring_all_near as bring_all_near
from fsplaplace.training._observed import is_stated as is_stated
from fsplaplace.training._observed import not_shifted as not_shifted
from fsplaplace.training._observed import observed_rows as observed_rows
from fsplaplace.training._observed import settle as settle
from fsplaplace.training._observed import settle_under as settle_under
from fsplaplace.training._problem import check_problem as check_problem
from fsplaplace.training._problem import check_types as check_types
from fsplaplace.training._problem import check_widths as check_widths
from fsplaplace.training._train import History as History
from fsplaplace.training._train import Trained as Trained
from fsplaplace.training._train import train as train
from fsplaplace.training._trainable import HeldOutLoss as HeldOutLoss
from fsplaplace.training._trainable import adam as adam
from fsplaplace.training._trainable import combine as combine
from fsplaplace.training._trainable import hold_out as hold_out
from fsplaplace.training._trainable import partition as partition
