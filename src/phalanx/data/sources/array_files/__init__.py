"""Arrays of pixels and labels in files: .npz, .npy and HDF5."""
