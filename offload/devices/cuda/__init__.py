"""CUDA devices, through CuPy. The only package that imports it."""

from offload.devices.cuda.device import CudaDevice, device_count

__all__ = ["CudaDevice", "device_count"]
