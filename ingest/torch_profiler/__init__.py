"""The reader of torch.profiler (Kineto) traces, of GPUs and of CPU runs."""
