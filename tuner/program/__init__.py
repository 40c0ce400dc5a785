"""The JAX side, and the only rooms that see a jaxpr: function -> layers -> function in other precisions."""

from tuner.program.capture import capture as capture
from tuner.program.fusions import available_fusions as available_fusions
from tuner.program.kernels import supports as supports
from tuner.program.layer import Layer as Layer
from tuner.program.layer_scope import layer_of_op_name as layer_of_op_name
from tuner.program.policies import kernel_names as kernel_names
from tuner.program.policies import make_policy as make_policy
from tuner.program.policies import original_policy as original_policy
from tuner.program.policies import uniform_policy as uniform_policy
from tuner.program.prepare import Prepared as Prepared
from tuner.program.prepare import prepare as prepare
from tuner.program.program import Program as Program
from tuner.program.scan_segments import segment_leaders as segment_leaders
