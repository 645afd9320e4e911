"""The reader of Nsight Systems SQLite exports, of any version from 2020 to 2026."""
