"""How people lay out images: the level of class folders, splits, and the lists that lie beside images."""
