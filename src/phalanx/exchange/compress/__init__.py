"""Gradient compression: `spec` parses the setting, codecs compress, `hooks` put them into DDP."""
