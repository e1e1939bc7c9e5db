"""What a run says about itself: events, where they go, and pictures drawn from them."""
