"""A comparison in every format: each module has render(comparison) -> str."""
