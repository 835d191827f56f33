"""Values of the protocol: frozen, with canonical JSON and hashes; they import no other package but `world.errors`."""
