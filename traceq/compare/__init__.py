"""Runs side by side: what differs, by how much, and what of it is more than noise."""
