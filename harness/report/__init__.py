"""What people read: the terminal now."""
