"""Learning-rate schedules, optimizers, and the update that workers and parameter servers share."""
