"""What `python -m lens_ref.evaluate` does, a file per step."""
