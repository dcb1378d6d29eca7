"""What a consumer was sent, counted."""
