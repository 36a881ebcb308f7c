"""What a person sees while a run works. It listens to events; the engine never prints."""
