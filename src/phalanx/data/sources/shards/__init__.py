"""Many samples in few large files: RecordIO, TFRecord, WebDataset and Arrow, with an index of the samples."""
