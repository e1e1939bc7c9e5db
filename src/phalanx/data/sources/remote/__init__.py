"""Data in S3, GCS or at an http address: listed, fetched on demand, and kept on this machine."""
