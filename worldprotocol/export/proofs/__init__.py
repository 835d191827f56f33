"""Proofs for third parties: signed tree heads, receipts for events, consistency proofs, and checks of exports."""
