"""`phalanx plan`: predict step time, memory, hours and cost of a recipe on a cluster, before anything is launched."""
