"""A network as one pure function of its weights: models, matched features, products with the Jacobian."""

from fsplaplace.networks._as_model import as_model as as_model
from fsplaplace.networks._jacobian import bytes_per_row as bytes_per_row
from fsplaplace.networks._jacobian import directions_together as directions_together
from fsplaplace.networks._jacobian import jacobian as jacobian
from fsplaplace.networks._jacobian import jacobian_blocks as jacobian_blocks
from fsplaplace.networks._jacobian import jacobian_matrix as jacobian_matrix
from fsplaplace.networks._jacobian import jacobian_rows as jacobian_rows
from fsplaplace.networks._jacobian import linearisation as linearisation
from fsplaplace.networks._jacobian import map_rows as map_rows
from fsplaplace.networks._jacobian import outputs_and_jacobian as outputs_and_jacobian
from fsplaplace.networks._jacobian import outputs_and_products as outputs_and_products
from fsplaplace.networks._jacobian import pull_back as pull_back
from fsplaplace.networks._jacobian import push_forward as push_forward
from fsplaplace.networks._jacobian import push_forward_block as push_forward_block
from fsplaplace.networks._jacobian import route as route
from fsplaplace.networks._jacobian import rows_per_block as rows_per_block
from fsplaplace.networks._layers import layer_order as layer_order
from fsplaplace.networks._mlp import MLP as MLP
from fsplaplace.networks._mlp import match_first_layer as match_first_layer
from fsplaplace.networks._mlp import matched_first_layer as matched_first_layer
from fsplaplace.networks._mlp import mlp as mlp
from fsplaplace.networks._model import Model as Model
from fsplaplace.networks._precision import Extent as Extent
from fsplaplace.networks._precision import PrecisionWarning as PrecisionWarning
from fsplaplace.networks._precision import warn_if_coarse as warn_if_coarse
from fsplaplace.networks._units import Units as Units
