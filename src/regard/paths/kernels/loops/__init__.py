"""The loops that numba compiles. Importing any module here imports numba."""
