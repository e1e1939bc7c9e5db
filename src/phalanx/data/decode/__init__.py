"""Decoding: compressed images to cropped and resized pixels."""
