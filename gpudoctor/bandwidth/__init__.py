"""Measuring on this host: which GPUs, what sizes, which engine, and what to vary when it falls short.

Everything that touches CUDA or NCCL runs in children with a deadline; nothing here imports PyTorch.
"""
