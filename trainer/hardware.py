"""What the machine says about itself: the GPU's peak by its exact name, memory used, how busy it is.

Every figure is None where it is not known: a guessed peak makes a wrong MFU look like a measured one.
"""

from __future__ import annotations

import torch

# Dense 16-bit matrix peak with fp32 accumulation, FLOP/s, from NVIDIA's data sheets, by torch.cuda.get_device_name().
PEAK_FLOPS_16_BIT = {
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA H100 80GB HBM3": 989.4e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H200": 989.4e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA L4": 121e12,
    "NVIDIA A10": 125e12,
    "NVIDIA B200": 2250e12,
}


def peak_flops(device_name: str, precision: str) -> float | None:
    """FLOP/s of one device; None for a name not in the table, and for fp32, where the peak depends on TF32."""
    return None if precision == "fp32" else PEAK_FLOPS_16_BIT.get(device_name)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def memory_peak_bytes(device: torch.device) -> int | None:
    """Most bytes the allocator held since the process began; None on CPU."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None


def utilisation(device: torch.device) -> float | None:
    """Share of the last sampling period in which a kernel ran, by NVML; None on CPU, without nvidia-ml-py, and where
    NVML does not know (a MIG slice).
    """
    if device.type != "cuda":
        return None
    try:
        return torch.cuda.utilization(device) / 100
    except Exception:  # NVML's own errors, whose class is there only where it is installed
        return None
