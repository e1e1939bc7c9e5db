"""`phalanx board`: runs in the browser, from their folders. It meets training through files only."""
