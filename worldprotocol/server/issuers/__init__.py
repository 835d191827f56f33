"""OIDC issuers: their keys, the verification of JWTs, and sign-in of browsers."""
