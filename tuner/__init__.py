"""Which number format should each layer of a JAX program use? Found by measurement, on this device."""

__version__ = "0.1.0.dev0"
