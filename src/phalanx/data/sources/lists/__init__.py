"""Lists of image files with their labels: lines, MXNet's `.lst`, tables (CSV, TSV); which columns, which files."""
