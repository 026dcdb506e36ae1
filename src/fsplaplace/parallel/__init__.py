"""Several devices and several processes: the same calls, with rows of data and context split between them."""

from fsplaplace.parallel._mesh import gather as gather
from fsplaplace.parallel._mesh import map_sharded as map_sharded
from fsplaplace.parallel._mesh import num_shards as num_shards
from fsplaplace.parallel._mesh import replicate as replicate
from fsplaplace.parallel._mesh import row_sharding as row_sharding
from fsplaplace.parallel._mesh import shard_rows as shard_rows
from fsplaplace.parallel._mesh import use_mesh as use_mesh
