"""What an instance does beside serving: old journals, watched files, a look at itself."""
