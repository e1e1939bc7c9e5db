"""What processes of a job need to talk: proof of the job's key, memory shared on one machine, doors that stay shut."""
