"""Adapters to the attention of torch and of Hugging Face transformers."""
