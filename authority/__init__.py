"""Authority: from a proposal to a ruling. Rules, policies, people and tribunals, each with its reasons."""
