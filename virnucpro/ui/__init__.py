"""What a person sees while a command works. It listens to events; the work never prints."""
