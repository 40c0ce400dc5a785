"""Which number format should each layer of a JAX program use? Found by measurement, on this device."""
