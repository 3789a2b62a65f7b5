"""The studio: a local page to look at trained models, edit their attention, and train new ones."""

from regard.studio.app import create_studio

__all__ = ["create_studio"]
