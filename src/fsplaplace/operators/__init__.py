"""Operators: what can be computed from a function and observed, as `operator(f)(x)` for one point x.

| operator | $L[f](x)$ |
|---|---|
| `value` | $f(x)$ |
| `partial(i, j, ...)` | $\\partial^k f / \\partial x_i \\partial x_j \\cdots$ |
| `directional(v)` | $v \\cdot \\nabla f$ |
| `gradient`, `divergence`, `curl`, `laplacian` | $\\nabla f$, $\\nabla \\cdot f$, $\\nabla \\times f$, $\\Delta f$ |
| `integral(lower, upper)`, `average(lower, upper)` | over an interval or a box, which may move with x |
| `combination(weights)`, `output(i)` | $W f(x)$, $f_i(x)$ |
| `linear(function)`, `nonlinear(function)` | `lambda f: lambda x: ...` with ordinary JAX |
"""

from fsplaplace.operators._custom import Custom as Custom
from fsplaplace.operators._custom import as_operator as as_operator
from fsplaplace.operators._custom import follows_shifts as follows_shifts
from fsplaplace.operators._custom import linear as linear
from fsplaplace.operators._custom import nonlinear as nonlinear
from fsplaplace.operators._custom import settled as settled
from fsplaplace.operators._derivatives import curl as curl
from fsplaplace.operators._derivatives import directional as directional
from fsplaplace.operators._derivatives import divergence as divergence
from fsplaplace.operators._derivatives import gradient as gradient
from fsplaplace.operators._derivatives import laplacian as laplacian
from fsplaplace.operators._derivatives import partial as partial
from fsplaplace.operators._integrals import average as average
from fsplaplace.operators._integrals import integral as integral
from fsplaplace.operators._operator import Operator as Operator
from fsplaplace.operators._outputs import Value as Value
from fsplaplace.operators._outputs import combination as combination
from fsplaplace.operators._outputs import output as output
from fsplaplace.operators._outputs import value as value
from fsplaplace.operators._tangent import Tangent as Tangent
