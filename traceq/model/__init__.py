"""What the words of traceq mean: pure definitions, no input or output."""
