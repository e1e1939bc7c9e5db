"""Gradients as fewer bytes: `spec` reads what the user asked for, codecs do it, `hooks` put them into DDP."""
