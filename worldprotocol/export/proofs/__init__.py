"""Proofs for outsiders: signed tree heads, receipts for single events, consistency proofs, and checks of exports."""
