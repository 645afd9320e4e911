"""One module a revision, oldest first; a revision that was released never changes."""
