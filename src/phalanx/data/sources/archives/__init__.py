"""Archives read in place: zip and tar files whose members are images in class folders."""
