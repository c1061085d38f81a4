"""A small replacement of ALF for machines without it: the data types and the base class that the ALF face needs.

If ALF is installed, tests import ALF instead.
"""

from . import data_structures, nest, tensor_specs
from .config_util import config, configurable, get_config_value, get_handled_pre_configs
from .device import get_default_device, set_default_device
from .tensor_specs import BoundedTensorSpec, TensorSpec

__all__ = [
    "BoundedTensorSpec",
    "TensorSpec",
    "config",
    "configurable",
    "data_structures",
    "get_config_value",
    "get_default_device",
    "get_handled_pre_configs",
    "nest",
    "set_default_device",
    "tensor_specs",
]
