"""Attention of other people's models, seen or run by ours."""
