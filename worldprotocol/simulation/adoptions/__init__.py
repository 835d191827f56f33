"""Adoptions in simulations: migrations, programs that differ from what is in force, and refused states and inputs."""
