"""Knowledge distillation: teachers, their losses, and the objective that learns from them."""
