"""The only rooms that run candidates: one policy in, one measurement out."""

from tuner.measure.device import device_fingerprint as device_fingerprint
from tuner.measure.device import device_lock as device_lock
from tuner.measure.device import device_name as device_name
from tuner.measure.evaluator import Evaluator as Evaluator
from tuner.measure.kernel_table import KernelTable as KernelTable
from tuner.measure.kernel_table import time_kernels as time_kernels
from tuner.measure.remote import IsolatedEvaluator as IsolatedEvaluator
from tuner.measure.remote import make_evaluator as make_evaluator
